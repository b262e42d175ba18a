-- Statements that read differently in SQLite.

-- name: live_paths
-- The live rows of the paths that a commit touches; the paths come as a JSON array.
SELECT f.path, f.version, f.ordinal, f.deletion_vector, f.schema_version
FROM json_each($paths) AS p CROSS JOIN dl_add_files f INDEXED BY dl_add_files_live_path
WHERE f.table_id = $table_id AND f.path = p.value AND f.removed_version IS NULL

-- name: live_files
-- The live files of a version. A file that a later commit removed is still live here.
SELECT {columns} FROM dl_add_files f INDEXED BY dl_add_files_live_path
WHERE f.table_id = $table_id AND f.version <= $version AND f.removed_version IS NULL
UNION ALL
SELECT {columns} FROM dl_add_files f INDEXED BY dl_add_files_removed
WHERE f.table_id = $table_id AND f.version <= $version AND f.removed_version > $version

-- name: live_keys
-- The keys of a version's live files.
SELECT version, ordinal FROM dl_add_files INDEXED BY dl_add_files_live_path
WHERE table_id = $table_id AND version <= $version AND removed_version IS NULL
UNION ALL
SELECT version, ordinal FROM dl_add_files INDEXED BY dl_add_files_removed
WHERE table_id = $table_id AND version <= $version AND removed_version > $version

-- name: check_pages
-- What is wrong with the file itself, or "ok".
PRAGMA integrity_check
