-- Statements that read differently in DuckDB, which scans columns instead of walking indexes.

-- name: live_paths
-- The live rows of the paths that a commit touches; a list is one text, since DuckDB binds each element by itself.
SELECT f.path, f.version, f.ordinal, f.deletion_vector, f.schema_version FROM dl_add_files f
WHERE f.table_id = $table_id AND f.removed_version IS NULL AND f.path IN (SELECT unnest(string_split($paths, chr(1))))

-- name: oldest_live
-- The version of the oldest live file: DuckDB skips the blocks of earlier ones, whose files are all removed.
SELECT min(version) FROM dl_add_files
WHERE table_id = $table_id AND version <= $version AND (removed_version IS NULL OR removed_version > $version)

-- name: kept_files
-- The live files of a version whose keys a predicate kept.
WITH column_stats AS NOT MATERIALIZED (SELECT * FROM main.column_stats WHERE version >= $oldest),
kept AS MATERIALIZED ({kept})
SELECT {columns} FROM dl_add_files f JOIN kept ON f.version = kept.version AND f.ordinal = kept.ordinal
WHERE f.table_id = $table_id AND f.version >= $oldest AND f.version <= $version
  AND (f.removed_version IS NULL OR f.removed_version > $version)

-- name: kept_row_groups
-- The row groups of those live files whose keys a predicate kept.
WITH column_stats AS NOT MATERIALIZED (SELECT * FROM main.column_stats WHERE version >= $oldest),
kept AS MATERIALIZED ({kept})
SELECT {columns} FROM row_groups f
JOIN dl_add_files a ON a.version = f.version AND a.ordinal = f.ordinal
JOIN kept ON f.version = kept.version AND f.ordinal = kept.ordinal
WHERE a.table_id = $table_id AND f.table_id = $table_id AND f.version >= $oldest AND a.version <= $version
  AND (a.removed_version IS NULL OR a.removed_version > $version)

-- name: keys_range_num
-- Files whose numbers in a column can lie in [low, high].
SELECT version, ordinal FROM column_stats
WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0 AND min_num <= $high{n} AND max_num >= $low{n}

-- name: keys_range_text
-- Files whose strings in a column can lie in [low, high].
SELECT version, ordinal FROM column_stats
WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0
  AND min_text <= $high{n} AND (max_text >= $low{n} OR max_text IS NULL)

-- name: mirror_begin
-- There is one writer, and no key to conflict with.
INSERT INTO dl_mirror_status (table_id, published_version, state, updated_at)
SELECT $table_id, $published, $state, $updated_at
WHERE NOT EXISTS (SELECT 1 FROM dl_mirror_status WHERE table_id = $table_id) RETURNING table_id
