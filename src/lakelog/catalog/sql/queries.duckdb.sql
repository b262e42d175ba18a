-- Statements that read differently in DuckDB, which scans columns instead of walking indexes.

-- name: live_paths
-- The live rows of the paths that a commit touches; a list is one text, since DuckDB binds each element by itself.
SELECT f.path, f.version, f.ordinal, f.deletion_vector FROM dl_add_files f
WHERE f.table_id = $table_id AND f.removed_version IS NULL AND f.path IN (SELECT unnest(string_split($paths, chr(1))))

-- name: kept_files
-- The live files of a version whose keys a predicate kept.
WITH kept AS MATERIALIZED ({kept})
SELECT {columns} FROM dl_add_files f JOIN kept ON f.version = kept.version AND f.ordinal = kept.ordinal
WHERE f.table_id = $table_id AND f.version <= $version AND (f.removed_version IS NULL OR f.removed_version > $version)

-- name: keys_range_num
-- Files whose numbers in a column can lie in [low, high].
SELECT version, ordinal FROM column_stats
WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0 AND min_num <= $high{n} AND max_num >= $low{n}

-- name: keys_range_text
-- Files whose strings in a column can lie in [low, high].
SELECT version, ordinal FROM column_stats
WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0
  AND min_text <= $high{n} AND (max_text >= $low{n} OR max_text IS NULL)
