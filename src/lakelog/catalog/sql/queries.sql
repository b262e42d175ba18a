-- Statements that all three databases understand. $name is a bound parameter.

-- name: table_by_name
-- The heads of the live tables that a name may mean: one, or several that are twins.
SELECT table_id, name, location, current_version, committed_at, metadata_since, protocol_since, created_at, dropped_at
FROM dl_tables WHERE name_key = $name_key AND dropped_at IS NULL ORDER BY name COLLATE "binary"

-- name: table_by_id
-- A table's head by id, dropped or not.
SELECT table_id, name, location, current_version, committed_at, metadata_since, protocol_since, created_at, dropped_at
FROM dl_tables WHERE table_id = $table_id

-- name: lock_head
-- The head of a table, if it is the expected one or none is expected, and the catalog's format. The transaction holds the
-- only write lock.
SELECT table_id, name, location, current_version, committed_at, metadata_since, protocol_since, created_at, dropped_at,
       (SELECT max(version) FROM lakelog_migrations) AS format
FROM dl_tables WHERE table_id = $table_id AND current_version = coalesce($expected, current_version)

-- name: clock
-- The time by which commits and leases go: this machine's, where the database has none of its own.
SELECT CAST($now AS bigint)

-- name: live_tables
-- All live tables, by name.
SELECT table_id, name, location, current_version, committed_at, metadata_since, protocol_since, created_at, dropped_at
FROM dl_tables WHERE dropped_at IS NULL ORDER BY name COLLATE "binary"

-- name: tables_at
-- Every table that there ever was, and where it lies.
SELECT table_id, location FROM dl_tables

-- name: locations
-- Every location that was ever given to a table, for finding overlaps.
SELECT location FROM dl_tables

-- name: create_table
-- A table before its first commit.
INSERT INTO dl_tables (name, name_key, location, created_at) VALUES ($name, $name_key, $location, $created_at)
RETURNING table_id

-- name: table_by_location
-- The table that has a location, dropped or not: there is only one.
SELECT table_id, name, location, current_version, committed_at, metadata_since, protocol_since, created_at, dropped_at
FROM dl_tables WHERE location = $location

-- name: hide_table
-- A new table that is filled from a version on before it is shown.
UPDATE dl_tables SET current_version = $version, dropped_at = $dropped_at WHERE table_id = $table_id

-- name: show_table
-- Makes a hidden table a dataset.
UPDATE dl_tables SET name = $name, name_key = $name_key, has_twin = false, dropped_at = NULL
WHERE table_id = $table_id AND dropped_at IS NOT NULL RETURNING table_id

-- name: purge
-- Takes a table that was never shown out of one of the log's tables.
DELETE FROM {table} WHERE table_id = $table_id

-- name: rename_table
UPDATE dl_tables SET name = $name, name_key = $name_key, has_twin = false WHERE table_id = $table_id

-- name: undrop_table
UPDATE dl_tables SET name = $name, name_key = $name_key, has_twin = false, dropped_at = NULL WHERE table_id = $table_id

-- name: all_names
-- The names of all tables, by which a catalog gets their keys.
SELECT table_id, name, dropped_at FROM dl_tables

-- name: set_name_key
UPDATE dl_tables SET name_key = $name_key, has_twin = $has_twin WHERE table_id = $table_id

-- name: dropped_tables
-- Tables that had a name when they were dropped, the latest first. Those that are being imported look like it.
SELECT t.table_id, t.name, t.location, t.current_version, t.committed_at, t.metadata_since, t.protocol_since,
       t.created_at, t.dropped_at
FROM dl_tables t LEFT JOIN dl_mirror_status m ON m.table_id = t.table_id
WHERE t.name_key = $name_key AND t.dropped_at IS NOT NULL AND coalesce(m.state, '') <> 'importing'
ORDER BY t.dropped_at DESC, t.table_id DESC

-- name: drop_table
UPDATE dl_tables SET dropped_at = $dropped_at WHERE table_id = $table_id

-- name: advance_head
-- Moves the head by exactly one.
UPDATE dl_tables
SET current_version = $version, committed_at = $committed_at,
    metadata_since = $metadata_version, protocol_since = $protocol_version
WHERE table_id = $table_id AND current_version = $version - 1

-- name: live_path
-- The live row of the one path that a commit touches.
SELECT path, version, ordinal, deletion_vector, schema_version FROM dl_add_files
WHERE table_id = $table_id AND path = $path AND removed_version IS NULL

-- name: close_removed
-- Marks the files that this commit's removes name as removed by it.
UPDATE dl_add_files SET removed_version = r.version
FROM dl_remove_files AS r
WHERE r.table_id = $table_id AND r.version = $version
  AND dl_add_files.table_id = $table_id AND dl_add_files.version = r.added_version
  AND dl_add_files.ordinal = r.added_ordinal AND dl_add_files.removed_version IS NULL

-- name: close_file
-- Marks one file as replaced by a re-added path.
UPDATE dl_add_files SET removed_version = $removed_version
WHERE table_id = $table_id AND version = $version AND ordinal = $ordinal AND removed_version IS NULL

-- name: commit_by_id
-- Where a commit stands: one row for each table that it touched.
SELECT v.table_id, t.name, v.version, v.committed_at, t.location
FROM dl_table_versions v JOIN dl_tables t ON t.table_id = v.table_id
WHERE v.commit_id = $commit_id ORDER BY v.table_id

-- name: metadata_at
-- The metadata in force at a version.
SELECT version, metadata_id, name, description, format, schema_string, partition_columns, configuration, created_time,
       schema_version, extra
FROM dl_metadata_updates WHERE table_id = $table_id AND version <= $version ORDER BY version DESC LIMIT 1

-- name: metadata_history
-- Every change of metadata up to a version, newest first.
SELECT version, metadata_id, name, description, format, schema_string, partition_columns, configuration, created_time,
       schema_version, extra
FROM dl_metadata_updates WHERE table_id = $table_id AND version <= $version ORDER BY version DESC

-- name: metadata_between
-- The changes of metadata between two versions, oldest first.
SELECT version, metadata_id, name, description, format, schema_string, partition_columns, configuration, created_time,
       schema_version, extra
FROM dl_metadata_updates
WHERE table_id = $table_id AND version > $after AND version < $version ORDER BY version

-- name: protocol_at
-- The protocol in force at a version.
SELECT version, min_reader_version, min_writer_version, reader_features, writer_features, extra
FROM dl_protocol_updates WHERE table_id = $table_id AND version <= $version ORDER BY version DESC LIMIT 1

-- name: schemas
-- A table's Arrow schemas up to one of them, with what is known of how they came about.
SELECT version, arrow_schema, merge FROM schema_versions WHERE table_id = $table_id AND version <= $version

-- name: schema_history
-- A table's Arrow schemas, newest first, with the commits that brought them, as far as they have not expired.
SELECT s.version, s.arrow_schema, s.introduced_by, s.merge, v.committed_at, v.operation,
       CAST(v.commit_id AS VARCHAR) AS commit_id
FROM schema_versions s LEFT JOIN dl_table_versions v ON v.table_id = s.table_id AND v.version = s.introduced_by
WHERE s.table_id = $table_id ORDER BY s.version DESC

-- name: version_at_time
-- The last version committed at or before a time.
SELECT version, committed_at FROM dl_table_versions
WHERE table_id = $table_id AND committed_at <= $time ORDER BY committed_at DESC LIMIT 1

-- name: first_version
SELECT version, committed_at FROM dl_table_versions WHERE table_id = $table_id ORDER BY version LIMIT 1

-- name: history
-- Commits of a table, newest first.
SELECT version, committed_at, CAST(commit_id AS VARCHAR) AS commit_id, committer, operation, operation_parameters, extra
FROM dl_table_versions
WHERE table_id = $table_id AND version >= $first AND version <= $last ORDER BY version DESC LIMIT $limit

-- name: txn_version
-- How far an application has come.
SELECT app_version FROM dl_txn_actions
WHERE table_id = $table_id AND app_id = $app_id AND version <= $version ORDER BY version DESC LIMIT 1

-- name: txn_actions
SELECT version, app_id, app_version, last_update, extra FROM dl_txn_actions
WHERE table_id = $table_id AND version >= $first AND version <= $last ORDER BY version, app_id COLLATE "binary"

-- name: txn_between
-- The first commit after a version, up to another, that recorded an application's progress.
SELECT min(version) FROM dl_txn_actions
WHERE table_id = $table_id AND app_id = $app_id AND version > $version AND version <= $last

-- name: domain_at
-- A domain's configuration at a version.
SELECT configuration, removed FROM dl_domain_metadata
WHERE table_id = $table_id AND domain = $domain AND version <= $version ORDER BY version DESC LIMIT 1

-- name: domain_actions
SELECT version, domain, configuration, removed, extra FROM dl_domain_metadata
WHERE table_id = $table_id AND version >= $first AND version <= $last ORDER BY version, domain COLLATE "binary"

-- name: rule_changes
-- The commits after a version, up to another, that changed what every writer has to respect; and whether that version
-- has expired, so that nobody knows.
SELECT version, 'metadata' AS changed FROM dl_metadata_updates
WHERE table_id = $table_id AND version > $version AND version <= $last
UNION ALL
SELECT version, 'protocol' AS changed FROM dl_protocol_updates
WHERE table_id = $table_id AND version > $version AND version <= $last
UNION ALL
SELECT $last AS version, 'expired' AS changed
WHERE NOT EXISTS (SELECT 1 FROM dl_table_versions WHERE table_id = $table_id AND version = $version)

-- name: live_files
-- The live files of a version. A file that a later commit removed is still live here.
SELECT {columns} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.version <= $version AND f.removed_version IS NULL
UNION ALL
SELECT {columns} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.version <= $version AND f.removed_version > $version

-- name: live_keys
-- The keys of a version's live files.
SELECT version, ordinal FROM dl_add_files
WHERE table_id = $table_id AND version <= $version AND removed_version IS NULL
UNION ALL
SELECT version, ordinal FROM dl_add_files
WHERE table_id = $table_id AND version <= $version AND removed_version > $version

-- name: kept_files
-- The live files of a version whose keys a predicate kept.
WITH kept AS MATERIALIZED ({kept})
SELECT {columns} FROM kept CROSS JOIN dl_add_files f
WHERE f.table_id = $table_id AND f.version = kept.version AND f.ordinal = kept.ordinal
  AND f.version <= $version AND (f.removed_version IS NULL OR f.removed_version > $version)

-- name: added_files
-- Files added by the commits of a range of versions.
SELECT {columns} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.version >= $first AND f.version <= $last

-- name: removed_files
-- Files removed by the commits of a range of versions.
SELECT {columns} FROM dl_remove_files f
WHERE f.table_id = $table_id AND f.version >= $first AND f.version <= $last

-- name: touched_files
-- Each file that a commit after a version, up to another, added or removed, with the version that did so.
SELECT f.version AS touched_by, f.version, f.ordinal, true AS added, f.data_change, f.path, f.partition_values
FROM dl_add_files f WHERE f.table_id = $table_id AND f.version > $version AND f.version <= $last
UNION ALL
SELECT r.version AS touched_by, f.version, f.ordinal, false AS added, r.data_change, r.path, f.partition_values
FROM dl_remove_files r CROSS JOIN dl_add_files f
WHERE r.table_id = $table_id AND r.version > $version AND r.version <= $last
  AND f.table_id = $table_id AND f.version = r.added_version AND f.ordinal = r.added_ordinal

-- name: touched_keys
-- The keys of those of the same files that a predicate kept, live or not.
SELECT version, ordinal FROM (
  SELECT version, ordinal FROM dl_add_files
  WHERE table_id = $table_id AND version > $version AND version <= $last
  UNION ALL
  SELECT added_version AS version, added_ordinal AS ordinal FROM dl_remove_files
  WHERE table_id = $table_id AND version > $version AND version <= $last
) AS touched
{kept}

-- name: feed_files
-- Each file whose rows a commit of a range of versions added or removed, if the commit has no change files that say more.
SELECT f.version AS commit_version, 'insert' AS change_type, {columns} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.version >= $first AND f.version <= $last AND f.data_change
  AND NOT EXISTS (SELECT 1 FROM dl_cdc_files c WHERE c.table_id = $table_id AND c.version = f.version)
UNION ALL
SELECT r.version AS commit_version, 'delete' AS change_type, {columns}
FROM dl_remove_files r CROSS JOIN dl_add_files f
WHERE r.table_id = $table_id AND r.version >= $first AND r.version <= $last AND r.data_change
  AND f.table_id = $table_id AND f.version = r.added_version AND f.ordinal = r.added_ordinal
  AND NOT EXISTS (SELECT 1 FROM dl_cdc_files c WHERE c.table_id = $table_id AND c.version = r.version)

-- name: cdc_files
SELECT {columns} FROM dl_cdc_files f
WHERE f.table_id = $table_id AND f.version >= $first AND f.version <= $last

-- name: row_groups
-- The row groups of a version's live files.
SELECT {columns} FROM row_groups f
WHERE f.table_id = $table_id AND f.version <= $version AND EXISTS (
  SELECT 1 FROM dl_add_files a WHERE a.table_id = f.table_id AND a.version = f.version AND a.ordinal = f.ordinal
  AND (a.removed_version IS NULL OR a.removed_version > $version))

-- name: kept_row_groups
-- The row groups of those live files whose keys a predicate kept.
WITH kept AS MATERIALIZED ({kept})
SELECT {columns} FROM kept CROSS JOIN dl_add_files a CROSS JOIN row_groups f
WHERE a.table_id = $table_id AND a.version = kept.version AND a.ordinal = kept.ordinal
  AND a.version <= $version AND (a.removed_version IS NULL OR a.removed_version > $version)
  AND f.table_id = $table_id AND f.version = kept.version AND f.ordinal = kept.ordinal

-- name: keys_range_num
-- Files whose numbers in a column can lie in [low, high].
WITH RECURSIVE spans (span) AS (
  SELECT min(span) FROM column_stats WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0
  UNION ALL
  SELECT (SELECT min(c.span) FROM column_stats c
          WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span > spans.span)
  FROM spans WHERE spans.span IS NOT NULL
)
SELECT c.version, c.ordinal FROM spans CROSS JOIN column_stats c
WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span = spans.span
  AND c.min_num >= $low{n} - spans.span AND c.min_num <= $high{n} AND c.max_num >= $low{n}

-- name: keys_range_text
-- Files whose strings in a column can lie in [low, high]; a null high has no limit.
WITH RECURSIVE spans (span) AS (
  SELECT min(span) FROM column_stats WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0
  UNION ALL
  SELECT (SELECT min(c.span) FROM column_stats c
          WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span > spans.span)
  FROM spans WHERE spans.span IS NOT NULL
)
SELECT c.version, c.ordinal FROM spans CROSS JOIN column_stats c
WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span = spans.span AND c.min_num = 0
  AND c.min_text >= substr($low{n}, 1, CAST(spans.span AS INTEGER)) AND c.min_text <= $high{n}
  AND (c.max_text >= $low{n} OR c.max_text IS NULL)

-- name: keys_null
-- Files in which a column can be null.
SELECT version, ordinal FROM column_stats
WHERE table_id = $table_id AND column_name = $column{n} AND (null_count > 0 OR null_count IS NULL)

-- name: keys_all_null
-- Files in which a column has no value but null.
SELECT version, ordinal FROM column_stats WHERE table_id = $table_id AND column_name = $column{n} AND span = -1

-- name: keys_only_num
-- Files in which every value of a column is one number.
SELECT version, ordinal FROM column_stats
WHERE table_id = $table_id AND column_name = $column{n} AND span = 0 AND min_num = $value{n} AND max_num = $value{n}

-- name: keys_only_text
-- Files in which every value of a column is one string.
SELECT version, ordinal FROM column_stats
WHERE table_id = $table_id AND column_name = $column{n} AND span = $span{n} AND min_num = 0
  AND min_text = $value{n} AND max_text = $value{n}

-- name: keys_without_stats
-- Files without any statistics, which every search keeps.
SELECT version, ordinal FROM column_stats WHERE table_id = $table_id AND column_name = ''

-- name: keys_before
-- Live files older than a column's statistics, which every search of that column keeps.
SELECT version, ordinal FROM dl_add_files
WHERE table_id = $table_id AND version < $since{n} AND (removed_version IS NULL OR removed_version > $version)

-- name: commit_rows
-- What the commits of a range of versions put into one of the log's tables.
SELECT {columns} FROM {table}
WHERE table_id = $table_id AND version >= $first AND version <= $last ORDER BY version

-- name: added_counts
-- How many files each commit of a range of versions added.
SELECT version, count(*) AS files FROM dl_add_files
WHERE table_id = $table_id AND version >= $first AND version <= $last GROUP BY version

-- name: tombstones
-- The files that were removed up to a version, lately enough to be remembered.
SELECT {columns} FROM dl_remove_files f
WHERE f.table_id = $table_id AND f.version <= $version AND f.deletion_timestamp > $oldest
ORDER BY f.version

-- name: latest_txns
-- How far each application has come by a version.
SELECT app_id, app_version, last_update, extra FROM dl_txn_actions a
WHERE table_id = $table_id AND version = (
  SELECT max(b.version) FROM dl_txn_actions b
  WHERE b.table_id = $table_id AND b.app_id = a.app_id AND b.version <= $version)
ORDER BY app_id COLLATE "binary"

-- name: latest_domains
-- The domains that are there at a version.
SELECT domain, configuration, extra FROM dl_domain_metadata a
WHERE table_id = $table_id AND version = (
  SELECT max(b.version) FROM dl_domain_metadata b
  WHERE b.table_id = $table_id AND b.domain = a.domain AND b.version <= $version)
  AND NOT removed
ORDER BY domain COLLATE "binary"

-- name: mirror_status
-- How far a table's mirror is, if it was ever looked at.
SELECT published_version, state, error, updated_at FROM dl_mirror_status WHERE table_id = $table_id

-- name: mirror_begin
INSERT INTO dl_mirror_status (table_id, published_version, state, updated_at)
VALUES ($table_id, $published, $state, $updated_at) ON CONFLICT DO NOTHING RETURNING table_id

-- name: mirror_set
-- For a table that nobody else knows yet.
UPDATE dl_mirror_status SET published_version = $published, state = $state, error = $error, updated_at = $updated_at
WHERE table_id = $table_id

-- name: mirror_advance
-- Compares and sets: what another mirror did meanwhile stands.
UPDATE dl_mirror_status SET published_version = $published, state = $state, error = $error, updated_at = $updated_at
WHERE table_id = $table_id AND published_version = $found AND state = $found_state AND updated_at = $found_at
RETURNING table_id

-- name: mirror_pending
-- The live tables that have versions to publish.
SELECT t.table_id FROM dl_tables t LEFT JOIN dl_mirror_status m ON m.table_id = t.table_id
WHERE t.dropped_at IS NULL AND t.current_version > coalesce(m.published_version, -1)
  AND coalesce(m.state, 'published') IN ('published', 'failing')
ORDER BY t.table_id

-- name: migration_version
SELECT max(version) FROM lakelog_migrations

-- name: record_migration
INSERT INTO lakelog_migrations (version, applied_at) VALUES ($version, $applied_at)
