-- From format 1 to 2: writes in flight, and what upkeep has taken away.

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
