-- Upkeep's statements, which all three databases understand: writes in flight, vacuum, expiry and the check.

-- name: register_write
INSERT INTO dl_writes (directory, location, started_at, expires_at)
VALUES ($directory, $location, $now, $now + $length) RETURNING directory

-- name: lock_lease
-- The lease of a write, for a commit that needs it.
SELECT directory FROM dl_writes WHERE directory = $directory

-- name: end_lease
-- Ends the lease of a write with its commit.
DELETE FROM dl_writes WHERE directory = $directory

-- name: take_back_write
-- Ends the lease of a write that is not committed: from then on it cannot be.
DELETE FROM dl_writes WHERE directory = $directory RETURNING directory

-- name: writes_at
-- The writes that were registered below a location, expired or not.
SELECT directory, started_at, expires_at FROM dl_writes WHERE location = $location

-- name: end_expired_writes
DELETE FROM dl_writes WHERE location = $location AND expires_at <= $now RETURNING directory

-- name: retention
-- What upkeep has taken away from a table.
SELECT oldest_version, vacuumed_at, expired_at, shared FROM dl_retention WHERE table_id = $table_id

-- name: begin_retention
-- For a table that has no such row; its lock is held.
INSERT INTO dl_retention (table_id, oldest_version, vacuumed_at, expired_at, shared)
VALUES ($table_id, $oldest_version, $vacuumed_at, $expired_at, $shared)

-- name: set_retention
UPDATE dl_retention
SET oldest_version = $oldest_version, vacuumed_at = $vacuumed_at, expired_at = $expired_at, shared = $shared
WHERE table_id = $table_id

-- name: kept_version
-- A version that exists, from which version on data is whole by all means, and whether files of this one may be gone:
-- those that no version from there on needs.
SELECT v.version, r.oldest_version, r.vacuumed_at, v.version < r.oldest_version AND EXISTS (
  SELECT 1 FROM dl_add_files f WHERE f.table_id = $table_id AND f.version <= $version
    AND f.removed_version > $version AND f.removed_version <= r.oldest_version) AS lost
FROM dl_table_versions v LEFT JOIN dl_retention r ON r.table_id = v.table_id
WHERE v.table_id = $table_id AND v.version = $version

-- name: lost_files
-- The files of a version that may be gone.
SELECT f.path FROM dl_add_files f JOIN dl_retention r ON r.table_id = f.table_id
WHERE f.table_id = $table_id AND f.version <= $version
  AND f.removed_version > $version AND f.removed_version <= r.oldest_version

-- name: converted
-- Whether a table was made of files that existed.
SELECT 1 FROM dl_table_versions WHERE table_id = $table_id AND operation = 'CONVERT' LIMIT 1

-- name: known_files
-- Every file that the log knows, and the version that removed it.
SELECT path, deletion_vector, removed_version FROM dl_add_files WHERE table_id = $table_id

-- name: known_cdc_files
SELECT path, version FROM dl_cdc_files WHERE table_id = $table_id

-- name: absolute_files
-- Files of other tables whose paths or deletion vectors do not depend on their own locations. Nobody reads those of a
-- table that was dropped; one that is being imported looks like that.
SELECT f.path, f.deletion_vector
FROM dl_add_files f JOIN dl_tables t ON t.table_id = f.table_id LEFT JOIN dl_mirror_status m ON m.table_id = t.table_id
WHERE f.table_id <> $table_id AND (f.path LIKE '/%' OR f.path LIKE '%:/%' OR f.deletion_vector LIKE '%"p"%')
  AND (t.dropped_at IS NULL OR m.state = 'importing')

-- name: closed_before
-- How many files only the versions before one need.
SELECT count(*) FROM dl_add_files WHERE table_id = $table_id AND removed_version < $version

-- name: forget_parts
-- What is known of files that only the versions before one need.
DELETE FROM {table} WHERE table_id = $table_id AND (version, ordinal) IN (
  SELECT f.version, f.ordinal FROM dl_add_files f WHERE f.table_id = $table_id AND f.removed_version < $version)

-- name: forget_files
-- Files that only the versions before one need. Those that the version itself removed stay, since its removes name them.
DELETE FROM dl_add_files WHERE table_id = $table_id AND removed_version < $version

-- name: forget_commits
-- What the commits before a version did, where no later version builds on it.
DELETE FROM {table} WHERE table_id = $table_id AND version < $version

-- name: forget_progress
-- Progress, or a domain, that was superseded by a version.
DELETE FROM {table} WHERE table_id = $table_id AND version < $version AND ({key}, version) NOT IN (
  SELECT {key}, max(version) FROM {table} WHERE table_id = $table_id AND version <= $version GROUP BY {key})

-- name: forget_rules
-- Metadata or protocols that were superseded when a version came.
DELETE FROM {table} WHERE table_id = $table_id AND version < (
  SELECT max(version) FROM {table} WHERE table_id = $table_id AND version <= $version)

-- name: oldest_file
-- The version of the oldest file that the log knows.
SELECT min(version) FROM dl_add_files WHERE table_id = $table_id

-- name: forget_schemas
-- Schemas that neither a file nor a metadata has.
DELETE FROM schema_versions WHERE table_id = $table_id AND version < (
  SELECT min(needed.version) FROM (
    SELECT schema_version AS version FROM dl_add_files WHERE table_id = $table_id
    UNION ALL
    SELECT schema_version AS version FROM dl_metadata_updates WHERE table_id = $table_id) AS needed)

-- name: check_versions
-- How many versions there are up to the head, and which.
SELECT count(*), min(version), max(version), max(committed_at) FROM dl_table_versions
WHERE table_id = $table_id AND version <= $version

-- name: check_later
-- Versions above the head, which is asked for in the same statement, so that no commit that comes meanwhile is one.
SELECT v.version FROM dl_table_versions v JOIN dl_tables t ON t.table_id = v.table_id
WHERE v.table_id = $table_id AND v.version > t.current_version ORDER BY v.version

-- name: check_times
-- Versions that were not committed after the one before them.
SELECT v.version FROM dl_table_versions v JOIN dl_table_versions p ON p.table_id = v.table_id AND p.version = v.version - 1
WHERE v.table_id = $table_id AND v.version <= $version AND v.committed_at <= p.committed_at ORDER BY v.version

-- name: check_strays
-- Rows of versions that do not exist. Those from before the first may be in force still.
SELECT DISTINCT a.version FROM {table} a
LEFT JOIN dl_table_versions v ON v.table_id = a.table_id AND v.version = a.version
WHERE a.table_id = $table_id AND a.version >= $first AND a.version <= $version AND v.version IS NULL ORDER BY a.version

-- name: check_parts
-- Rows of files that do not exist.
SELECT DISTINCT a.version, a.ordinal FROM {table} a
LEFT JOIN dl_add_files f ON f.table_id = a.table_id AND f.version = a.version AND f.ordinal = a.ordinal
WHERE a.table_id = $table_id AND a.version <= $version AND f.version IS NULL ORDER BY a.version, a.ordinal

-- name: check_removed
-- Files whose removed_version is not the version of the next action on their path, and what that is. In one commit a
-- remove comes before an add.
SELECT version, ordinal, path, found, expected FROM (
  SELECT version, ordinal, path, is_add, CASE WHEN removed_version <= $version THEN removed_version END AS found,
         lead(version) OVER (PARTITION BY path ORDER BY version, is_add, ordinal) AS expected
  FROM (
    SELECT version, ordinal, path, 1 AS is_add, removed_version FROM dl_add_files
    WHERE table_id = $table_id AND version <= $version
    UNION ALL
    SELECT version, ordinal, path, 0 AS is_add, NULL AS removed_version FROM dl_remove_files
    WHERE table_id = $table_id AND version <= $version) AS actions) AS files
WHERE is_add = 1 AND coalesce(found, -1) <> coalesce(expected, -1) ORDER BY version, ordinal

-- name: check_removes
-- Removes that name another file than the one that they closed, or none.
SELECT r.version, r.path FROM dl_remove_files r
LEFT JOIN dl_add_files f ON f.table_id = r.table_id AND f.version = r.added_version AND f.ordinal = r.added_ordinal
WHERE r.table_id = $table_id AND r.version <= $version AND (f.path IS NULL OR f.path <> r.path OR f.version >= r.version)
ORDER BY r.version, r.path COLLATE "binary"

-- name: mend_removed
UPDATE dl_add_files SET removed_version = $removed_version
WHERE table_id = $table_id AND version = $version AND ordinal = $ordinal

-- name: check_row_groups
-- Files that have other row counts than their row groups together.
SELECT f.version, f.path, f.row_count, g.row_count FROM dl_add_files f
JOIN (SELECT version, ordinal, sum(row_count) AS row_count FROM row_groups WHERE table_id = $table_id
      GROUP BY version, ordinal) AS g ON g.version = f.version AND g.ordinal = f.ordinal
WHERE f.table_id = $table_id AND f.version <= $version AND f.row_count <> g.row_count ORDER BY f.version, f.path COLLATE "binary"

-- name: check_file_texts
-- What files say of their rows and partitions.
SELECT version, ordinal, path, row_count, stats, partition_values FROM dl_add_files
WHERE table_id = $table_id AND version <= $version

-- name: check_some_file_texts
-- The same of the files that some versions added.
SELECT version, ordinal, path, row_count, stats, partition_values FROM dl_add_files
WHERE table_id = $table_id AND version >= $first AND version <= $last

-- name: check_file_counts
-- How many files each version added.
SELECT version, count(*) FROM dl_add_files WHERE table_id = $table_id AND version <= $version
GROUP BY version ORDER BY version

-- name: check_bounds
-- What searches read of the files that some versions added.
SELECT version, ordinal, column_name, span, min_num, min_text, max_num, max_text, null_count FROM column_stats
WHERE table_id = $table_id AND version >= $first AND version <= $last

-- name: check_file
SELECT 1 FROM dl_add_files WHERE table_id = $table_id AND version = $version AND ordinal = $ordinal

-- name: forget_bounds
DELETE FROM column_stats WHERE table_id = $table_id AND version = $version AND ordinal = $ordinal

-- name: check_partitions
SELECT version, ordinal, key, value FROM partitions WHERE table_id = $table_id AND version <= $version

-- name: check_file_schemas
-- Files, by the first of their path, whose schema does not exist.
SELECT f.version, f.path, f.schema_version FROM dl_add_files f
LEFT JOIN schema_versions s ON s.table_id = f.table_id AND s.version = f.schema_version
WHERE f.table_id = $table_id AND f.version <= $version AND s.version IS NULL ORDER BY f.version, f.path COLLATE "binary"

-- name: check_pages
-- What is wrong with the database's own files, or "ok": where it has checksums, it refuses them by itself.
SELECT 'ok' AS message

-- name: check_metadata_schemas
SELECT m.version, m.schema_version FROM dl_metadata_updates m
LEFT JOIN schema_versions s ON s.table_id = m.table_id AND s.version = m.schema_version
WHERE m.table_id = $table_id AND m.version <= $version AND s.version IS NULL ORDER BY m.version

-- name: check_rules
-- The metadata and the protocol in force at the head.
SELECT (SELECT max(version) FROM dl_metadata_updates WHERE table_id = $table_id AND version <= $version),
       (SELECT max(version) FROM dl_protocol_updates WHERE table_id = $table_id AND version <= $version)

-- name: check_progress
-- Applications whose progress went back, or stood still.
SELECT app_id, version, app_version, before FROM (
  SELECT app_id, version, app_version, lag(app_version) OVER (PARTITION BY app_id ORDER BY version) AS before
  FROM dl_txn_actions WHERE table_id = $table_id AND version <= $version) AS steps
WHERE app_version <= before ORDER BY version, app_id COLLATE "binary"

-- name: check_places
-- The files that versions from one on need, with the range of versions that each is live in.
SELECT path, size, row_count, deletion_vector, schema_version, version, ordinal, removed_version FROM dl_add_files
WHERE table_id = $table_id AND version <= $version AND (removed_version IS NULL OR removed_version > $first)

-- name: check_cdc_places
-- The change files of versions from one on.
SELECT path, size, version FROM dl_cdc_files WHERE table_id = $table_id AND version >= $first AND version <= $version

-- name: check_groups
-- How many rows the row groups of files have, in order.
SELECT version, ordinal, row_count FROM row_groups WHERE table_id = $table_id ORDER BY version, ordinal, row_group
