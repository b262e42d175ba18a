-- From format 1 to 2: writes in flight, and what upkeep has taken away.

-- A write in flight: its own directory below a location, from before its first file until it has ended or expired.
CREATE TABLE dl_writes (
    directory   text PRIMARY KEY,
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
