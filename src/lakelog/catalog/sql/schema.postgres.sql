-- Lakelog catalog, format 4, for PostgreSQL. Created inside one schema (default: lakelog), which is on the search_path.
-- Times are milliseconds since 1970-01-01 UTC. JSON is kept as text, byte for byte, since the mirror repeats it.
-- Every text in an index is COLLATE "C": an operating system that orders texts otherwise some day damages no index.

CREATE TABLE lakelog_migrations (
    version     integer PRIMARY KEY,
    applied_at  bigint NOT NULL
);

-- A table and its head. committed_at is the last commit's time, and never decreases.
-- name_key is the name as it is looked up, folded by Lakelog: no database folds as Spark does. It is unique among live
-- tables, but for those that had one key together (has_twin) before there were keys.
CREATE TABLE dl_tables (
    table_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text NOT NULL,
    location          text NOT NULL,
    current_version   bigint NOT NULL DEFAULT -1 CHECK (current_version >= -1),
    committed_at      bigint NOT NULL DEFAULT 0,
    metadata_since    bigint NOT NULL DEFAULT -1,
    protocol_since    bigint NOT NULL DEFAULT -1,
    created_at        bigint NOT NULL,
    dropped_at        bigint,
    name_key          text COLLATE "C" NOT NULL,
    has_twin          boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
-- Every commit updates one row here: free space in the page lets PostgreSQL do that without touching an index.
CREATE UNIQUE INDEX dl_tables_live_name ON dl_tables (name_key, (CASE WHEN has_twin THEN name ELSE '' END COLLATE "C"))
WHERE dropped_at IS NULL;
CREATE UNIQUE INDEX dl_tables_location ON dl_tables (hashtextextended(location, 0), hashtextextended(location, 1));

-- A commit.
CREATE TABLE dl_table_versions (
    table_id              bigint NOT NULL,
    version               bigint NOT NULL CHECK (version >= 0),
    committed_at          bigint NOT NULL,
    commit_id             uuid NOT NULL,
    committer             text,
    operation             text NOT NULL,
    operation_parameters  text NOT NULL,
    extra                 text,
    PRIMARY KEY (table_id, version),
    CONSTRAINT dl_table_versions_time UNIQUE (table_id, committed_at),
    CONSTRAINT dl_table_versions_commit UNIQUE (commit_id, table_id)
);

-- An added file. removed_version is an index over the log and not a fact of its own: null while the file is live.
CREATE TABLE dl_add_files (
    table_id                    bigint NOT NULL,
    version                     bigint NOT NULL,
    ordinal                     integer NOT NULL,
    path                        text NOT NULL,
    size                        bigint NOT NULL CHECK (size >= 0),
    partition_values            text NOT NULL,
    stats                       text,
    row_count                   bigint CHECK (row_count >= 0),
    modification_time           bigint NOT NULL,
    data_change                 boolean NOT NULL,
    tags                        text,
    deletion_vector             text,
    base_row_id                 bigint,
    default_row_commit_version  bigint,
    schema_version              integer NOT NULL,
    removed_version             bigint CHECK (removed_version > version),
    extra                       text,
    PRIMARY KEY (table_id, version, ordinal)
);
-- At most one live row per path. Paths may be longer than a B-tree key, so 128 bits of hash stand for them.
CREATE UNIQUE INDEX dl_add_files_live_path ON dl_add_files
    (table_id, hashtextextended(path, 0), hashtextextended(path, 1)) WHERE removed_version IS NULL;
CREATE INDEX dl_add_files_removed ON dl_add_files (table_id, removed_version) WHERE removed_version IS NOT NULL;

-- A removed file, and which added row it closed.
CREATE TABLE dl_remove_files (
    table_id                    bigint NOT NULL,
    version                     bigint NOT NULL,
    ordinal                     integer NOT NULL,
    path                        text NOT NULL,
    deletion_timestamp          bigint,
    data_change                 boolean NOT NULL,
    extended_file_metadata      boolean,
    partition_values            text,
    size                        bigint,
    stats                       text,
    tags                        text,
    deletion_vector             text,
    base_row_id                 bigint,
    default_row_commit_version  bigint,
    added_version               bigint NOT NULL,
    added_ordinal               integer NOT NULL,
    extra                       text,
    PRIMARY KEY (table_id, version, ordinal)
);

CREATE TABLE dl_metadata_updates (
    table_id           bigint NOT NULL REFERENCES dl_tables,
    version            bigint NOT NULL,
    metadata_id        text NOT NULL,
    name               text,
    description        text,
    format             text NOT NULL,
    schema_string      text NOT NULL,
    partition_columns  text NOT NULL,
    configuration      text NOT NULL,
    created_time       bigint,
    schema_version     integer NOT NULL,
    extra              text,
    PRIMARY KEY (table_id, version)
);

CREATE TABLE dl_protocol_updates (
    table_id            bigint NOT NULL REFERENCES dl_tables,
    version             bigint NOT NULL,
    min_reader_version  integer NOT NULL,
    min_writer_version  integer NOT NULL,
    reader_features     text,
    writer_features     text,
    extra               text,
    PRIMARY KEY (table_id, version)
);

-- An application's progress: the row with the largest version is the current one.
CREATE TABLE dl_txn_actions (
    table_id     bigint NOT NULL,
    app_id       text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    app_version  bigint NOT NULL,
    last_update  bigint,
    extra        text,
    PRIMARY KEY (table_id, app_id, version)
);

CREATE TABLE dl_domain_metadata (
    table_id       bigint NOT NULL,
    domain         text COLLATE "C" NOT NULL,
    version        bigint NOT NULL,
    configuration  text NOT NULL,
    removed        boolean NOT NULL,
    extra          text,
    PRIMARY KEY (table_id, domain, version)
);

CREATE TABLE dl_cdc_files (
    table_id          bigint NOT NULL,
    version           bigint NOT NULL,
    ordinal           integer NOT NULL,
    path              text NOT NULL,
    size              bigint NOT NULL,
    partition_values  text NOT NULL,
    tags              text,
    extra             text,
    PRIMARY KEY (table_id, version, ordinal)
);

-- How far the mirror is. Written only by the mirror.
CREATE TABLE dl_mirror_status (
    table_id           bigint PRIMARY KEY REFERENCES dl_tables,
    published_version  bigint NOT NULL DEFAULT -1,
    state              text NOT NULL,
    error              text,
    updated_at         bigint NOT NULL
);

-- A write in flight: its own directory below a location, from before its first file until it has ended or expired.
CREATE TABLE dl_writes (
    directory   text COLLATE "C" PRIMARY KEY,
    location    text NOT NULL,
    started_at  bigint NOT NULL,
    expires_at  bigint NOT NULL
);

-- What upkeep has taken away. Data of versions before oldest_version is not whole. Files that were removed before
-- expired_at may be unknown to the log; shared says that the location had files of others when it became a table.
CREATE TABLE dl_retention (
    table_id        bigint PRIMARY KEY REFERENCES dl_tables,
    oldest_version  bigint NOT NULL DEFAULT 0,
    vacuumed_at     bigint,
    expired_at      bigint,
    shared          boolean NOT NULL DEFAULT false
);

-- A commit that must not come any more: its answer was lost, and when it was looked for, it was not there.
CREATE TABLE dl_void_commits (
    commit_id  uuid PRIMARY KEY,
    voided_at  bigint NOT NULL
);

-- An Arrow schema, as an IPC schema message. introduced_by is the commit's version.
CREATE TABLE schema_versions (
    table_id       bigint NOT NULL REFERENCES dl_tables,
    version        integer NOT NULL,
    arrow_schema   bytea NOT NULL,
    introduced_by  bigint NOT NULL,
    merge          text,
    PRIMARY KEY (table_id, version)
);

CREATE TABLE row_groups (
    table_id   bigint NOT NULL,
    version    bigint NOT NULL,
    ordinal    integer NOT NULL,
    row_group  integer NOT NULL,
    row_count  bigint NOT NULL CHECK (row_count >= 0),
    byte_size  bigint,
    stats      text,
    PRIMARY KEY (table_id, version, ordinal, row_group)
);

CREATE TABLE partitions (
    table_id  bigint NOT NULL,
    version   bigint NOT NULL,
    ordinal   integer NOT NULL,
    key       text COLLATE "C" NOT NULL,
    value     text,
    PRIMARY KEY (table_id, version, ordinal, key)
);

-- One column's bounds in one file: an index for pruning, derived from stats and partition values. Bounds may be wider
-- than the values, never narrower. Numbers, booleans, dates and timestamps (microseconds) use min_num and max_num;
-- strings use min_text and max_text (null: no upper bound). span says how wide the interval is, so that a search
-- looks only at intervals that can reach it: for numbers a power of four of at least twice the width (0: one value),
-- for strings the length of the prefix that both bounds share, and -1 where every value is null. A file without
-- statistics has one row with an empty column_name, which every search keeps.
CREATE TABLE column_stats (
    table_id     bigint NOT NULL,
    column_name  text COLLATE "C" NOT NULL,
    span         double precision NOT NULL,
    min_num      double precision NOT NULL,
    min_text     text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    ordinal      integer NOT NULL,
    max_num      double precision NOT NULL,
    max_text     text COLLATE "C",
    null_count   bigint,
    PRIMARY KEY (table_id, column_name, span, min_num, min_text, version, ordinal)
        INCLUDE (max_num, max_text, null_count)
);

CREATE VIEW datasets AS
SELECT table_id AS dataset_id, name, location AS base_uri, current_version, to_timestamp(created_at / 1000.0) AS created_at
FROM dl_tables WHERE dropped_at IS NULL;

CREATE VIEW transactions AS
SELECT table_id AS dataset_id, version, to_timestamp(committed_at / 1000.0) AS "timestamp", operation,
       operation_parameters AS metadata, committer, commit_id
FROM dl_table_versions;

CREATE VIEW files AS
SELECT version || '-' || ordinal AS file_id, table_id AS dataset_id, path, size, row_count, schema_version,
       version AS added_version, removed_version
FROM dl_add_files;
