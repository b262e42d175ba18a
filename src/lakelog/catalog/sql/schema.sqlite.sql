-- Lakelog catalog, format 4, for SQLite. Tables are STRICT; booleans are 0 and 1.
-- Times are milliseconds since 1970-01-01 UTC. JSON is kept as text, byte for byte, since the mirror repeats it.

CREATE TABLE lakelog_migrations (
    version     INTEGER PRIMARY KEY,
    applied_at  INTEGER NOT NULL
) STRICT;

-- A table and its head. committed_at is the last commit's time, and never decreases.
-- name_key is the name as it is looked up, folded by Lakelog: no database folds as Spark does. It is unique among live
-- tables, but for those that had one key together (has_twin) before there were keys.
CREATE TABLE dl_tables (
    table_id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name              TEXT NOT NULL,
    location          TEXT NOT NULL,
    current_version   INTEGER NOT NULL DEFAULT -1 CHECK (current_version >= -1),
    committed_at      INTEGER NOT NULL DEFAULT 0,
    metadata_since    INTEGER NOT NULL DEFAULT -1,
    protocol_since    INTEGER NOT NULL DEFAULT -1,
    created_at        INTEGER NOT NULL,
    dropped_at        INTEGER,
    name_key          TEXT,
    has_twin          INTEGER NOT NULL DEFAULT 0 CHECK (has_twin IN (0, 1))
) STRICT;
CREATE UNIQUE INDEX dl_tables_live_name ON dl_tables (name_key, (CASE WHEN has_twin THEN name ELSE '' END))
WHERE dropped_at IS NULL;
CREATE UNIQUE INDEX dl_tables_location ON dl_tables (location);
CREATE TRIGGER dl_tables_name_key BEFORE INSERT ON dl_tables WHEN NEW.name_key IS NULL
BEGIN SELECT RAISE(ABORT, 'name_key is missing: the catalog has format 4, upgrade the lakelog package'); END;

-- A commit.
CREATE TABLE dl_table_versions (
    table_id              INTEGER NOT NULL,
    version               INTEGER NOT NULL CHECK (version >= 0),
    committed_at          INTEGER NOT NULL,
    commit_id             TEXT NOT NULL,
    committer             TEXT,
    operation             TEXT NOT NULL,
    operation_parameters  TEXT NOT NULL,
    extra                 TEXT,
    PRIMARY KEY (table_id, version),
    CONSTRAINT dl_table_versions_time UNIQUE (table_id, committed_at),
    CONSTRAINT dl_table_versions_commit UNIQUE (commit_id, table_id)
) STRICT;

-- An added file. removed_version is an index over the log and not a fact of its own: null while the file is live.
CREATE TABLE dl_add_files (
    table_id                    INTEGER NOT NULL,
    version                     INTEGER NOT NULL,
    ordinal                     INTEGER NOT NULL,
    path                        TEXT NOT NULL,
    size                        INTEGER NOT NULL CHECK (size >= 0),
    partition_values            TEXT NOT NULL,
    stats                       TEXT,
    row_count                   INTEGER CHECK (row_count >= 0),
    modification_time           INTEGER NOT NULL,
    data_change                 INTEGER NOT NULL CHECK (data_change IN (0, 1)),
    tags                        TEXT,
    deletion_vector             TEXT,
    base_row_id                 INTEGER,
    default_row_commit_version  INTEGER,
    schema_version              INTEGER NOT NULL,
    removed_version             INTEGER CHECK (removed_version > version),
    extra                       TEXT,
    PRIMARY KEY (table_id, version, ordinal)
) STRICT;
-- At most one live row per path.
CREATE UNIQUE INDEX dl_add_files_live_path ON dl_add_files (table_id, path) WHERE removed_version IS NULL;
CREATE INDEX dl_add_files_removed ON dl_add_files (table_id, removed_version) WHERE removed_version IS NOT NULL;

-- A removed file, and which added row it closed.
CREATE TABLE dl_remove_files (
    table_id                    INTEGER NOT NULL,
    version                     INTEGER NOT NULL,
    ordinal                     INTEGER NOT NULL,
    path                        TEXT NOT NULL,
    deletion_timestamp          INTEGER,
    data_change                 INTEGER NOT NULL CHECK (data_change IN (0, 1)),
    extended_file_metadata      INTEGER CHECK (extended_file_metadata IN (0, 1)),
    partition_values            TEXT,
    size                        INTEGER,
    stats                       TEXT,
    tags                        TEXT,
    deletion_vector             TEXT,
    base_row_id                 INTEGER,
    default_row_commit_version  INTEGER,
    added_version               INTEGER NOT NULL,
    added_ordinal               INTEGER NOT NULL,
    extra                       TEXT,
    PRIMARY KEY (table_id, version, ordinal)
) STRICT;

CREATE TABLE dl_metadata_updates (
    table_id           INTEGER NOT NULL REFERENCES dl_tables,
    version            INTEGER NOT NULL,
    metadata_id        TEXT NOT NULL,
    name               TEXT,
    description        TEXT,
    format             TEXT NOT NULL,
    schema_string      TEXT NOT NULL,
    partition_columns  TEXT NOT NULL,
    configuration      TEXT NOT NULL,
    created_time       INTEGER,
    schema_version     INTEGER NOT NULL,
    extra              TEXT,
    PRIMARY KEY (table_id, version)
) STRICT;

CREATE TABLE dl_protocol_updates (
    table_id            INTEGER NOT NULL REFERENCES dl_tables,
    version             INTEGER NOT NULL,
    min_reader_version  INTEGER NOT NULL,
    min_writer_version  INTEGER NOT NULL,
    reader_features     TEXT,
    writer_features     TEXT,
    extra               TEXT,
    PRIMARY KEY (table_id, version)
) STRICT;

-- An application's progress: the row with the largest version is the current one.
CREATE TABLE dl_txn_actions (
    table_id     INTEGER NOT NULL,
    app_id       TEXT NOT NULL,
    version      INTEGER NOT NULL,
    app_version  INTEGER NOT NULL,
    last_update  INTEGER,
    extra        TEXT,
    PRIMARY KEY (table_id, app_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE dl_domain_metadata (
    table_id       INTEGER NOT NULL,
    domain         TEXT NOT NULL,
    version        INTEGER NOT NULL,
    configuration  TEXT NOT NULL,
    removed        INTEGER NOT NULL CHECK (removed IN (0, 1)),
    extra          TEXT,
    PRIMARY KEY (table_id, domain, version)
) STRICT;

CREATE TABLE dl_cdc_files (
    table_id          INTEGER NOT NULL,
    version           INTEGER NOT NULL,
    ordinal           INTEGER NOT NULL,
    path              TEXT NOT NULL,
    size              INTEGER NOT NULL,
    partition_values  TEXT NOT NULL,
    tags              TEXT,
    extra             TEXT,
    PRIMARY KEY (table_id, version, ordinal)
) STRICT;

-- How far the mirror is. Written only by the mirror.
CREATE TABLE dl_mirror_status (
    table_id           INTEGER PRIMARY KEY REFERENCES dl_tables,
    published_version  INTEGER NOT NULL DEFAULT -1,
    state              TEXT NOT NULL,
    error              TEXT,
    updated_at         INTEGER NOT NULL
) STRICT;

-- A write in flight: its own directory below a location, from before its first file until it has ended or expired.
CREATE TABLE dl_writes (
    directory   TEXT PRIMARY KEY,
    location    TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;

-- What upkeep has taken away. Data of versions before oldest_version is not whole. Files that were removed before
-- expired_at may be unknown to the log; shared says that the location had files of others when it became a table.
CREATE TABLE dl_retention (
    table_id        INTEGER PRIMARY KEY REFERENCES dl_tables,
    oldest_version  INTEGER NOT NULL DEFAULT 0,
    vacuumed_at     INTEGER,
    expired_at      INTEGER,
    shared          INTEGER NOT NULL DEFAULT 0 CHECK (shared IN (0, 1))
) STRICT;

-- A commit that must not come any more: its answer was lost, and when it was looked for, it was not there.
CREATE TABLE dl_void_commits (
    commit_id  TEXT PRIMARY KEY,
    voided_at  INTEGER NOT NULL
) STRICT;

-- An Arrow schema, as an IPC schema message. introduced_by is the commit's version.
CREATE TABLE schema_versions (
    table_id       INTEGER NOT NULL REFERENCES dl_tables,
    version        INTEGER NOT NULL,
    arrow_schema   BLOB NOT NULL,
    introduced_by  INTEGER NOT NULL,
    merge          TEXT,
    PRIMARY KEY (table_id, version)
) STRICT;

CREATE TABLE row_groups (
    table_id   INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,
    row_group  INTEGER NOT NULL,
    row_count  INTEGER NOT NULL CHECK (row_count >= 0),
    byte_size  INTEGER,
    stats      TEXT,
    PRIMARY KEY (table_id, version, ordinal, row_group)
) STRICT;

CREATE TABLE partitions (
    table_id  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    ordinal   INTEGER NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT,
    PRIMARY KEY (table_id, version, ordinal, key)
) STRICT, WITHOUT ROWID;

-- One column's bounds in one file: an index for pruning, derived from stats and partition values. Bounds may be wider
-- than the values, never narrower. Numbers, booleans, dates and timestamps (microseconds) use min_num and max_num;
-- strings use min_text and max_text (null: no upper bound). span says how wide the interval is, so that a search
-- looks only at intervals that can reach it: for numbers a power of four of at least twice the width (0: one value),
-- for strings the length of the prefix that both bounds share, and -1 where every value is null. A file without
-- statistics has one row with an empty column_name, which every search keeps.
CREATE TABLE column_stats (
    table_id     INTEGER NOT NULL,
    column_name  TEXT NOT NULL,
    span         REAL NOT NULL,
    min_num      REAL NOT NULL,
    min_text     TEXT NOT NULL,
    version      INTEGER NOT NULL,
    ordinal      INTEGER NOT NULL,
    max_num      REAL NOT NULL,
    max_text     TEXT,
    null_count   INTEGER,
    PRIMARY KEY (table_id, column_name, span, min_num, min_text, version, ordinal)
) STRICT, WITHOUT ROWID;

CREATE VIEW datasets AS
SELECT table_id AS dataset_id, name, location AS base_uri, current_version, strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at
FROM dl_tables WHERE dropped_at IS NULL;

CREATE VIEW transactions AS
SELECT table_id AS dataset_id, version, strftime('%Y-%m-%dT%H:%M:%fZ', committed_at / 1000.0, 'unixepoch') AS "timestamp", operation,
       operation_parameters AS metadata, committer, commit_id
FROM dl_table_versions;

CREATE VIEW files AS
SELECT version || '-' || ordinal AS file_id, table_id AS dataset_id, path, size, row_count, schema_version,
       version AS added_version, removed_version
FROM dl_add_files;
