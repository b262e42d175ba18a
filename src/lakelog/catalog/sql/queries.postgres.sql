-- Statements that read differently in PostgreSQL.

-- name: lock_head
-- The head of a table, with its row lock.
SELECT table_id, name, location, current_version, committed_at, metadata_version, protocol_version, created_at, dropped_at
FROM dl_tables WHERE table_id = $table_id FOR UPDATE

-- name: begin
-- READ COMMITTED, so that a writer that waited for the lock sees what was committed while it waited.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: guard
-- Limits for this transaction only, no commit that is not durable, and then the locks, in the order of their keys.
SELECT set_config('lock_timeout', $limit, true), set_config('statement_timeout', $limit, true),
       set_config('idle_in_transaction_session_timeout', $limit, true),
       set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true),
       {locks}

-- name: live_paths
-- The live rows of the paths that a commit touches.
SELECT f.path, f.version, f.ordinal, f.deletion_vector
FROM unnest(CAST($paths AS text[])) AS p (path)
JOIN dl_add_files f ON f.table_id = $table_id AND f.removed_version IS NULL
 AND hashtextextended(f.path, 0) = hashtextextended(p.path, 0)
 AND hashtextextended(f.path, 1) = hashtextextended(p.path, 1)
WHERE f.path = p.path

-- name: keys_range_num
-- Files whose numbers in a column can lie in [low, high]. OFFSET 0 keeps one index search for each span.
SELECT * FROM (
WITH RECURSIVE spans (span) AS (
  SELECT min(span) FROM column_stats WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0
  UNION ALL
  SELECT (SELECT min(c.span) FROM column_stats c
          WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span > spans.span)
  FROM spans WHERE spans.span IS NOT NULL
)
SELECT k.version, k.ordinal FROM spans CROSS JOIN LATERAL (
  SELECT c.version, c.ordinal FROM column_stats c
  WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span = spans.span
    AND c.min_num >= CAST($low{n} AS double precision) - spans.span AND c.min_num <= $high{n} AND c.max_num >= $low{n}
  OFFSET 0) k
) keys

-- name: keys_range_text
-- Files whose strings in a column can lie in [low, high].
SELECT * FROM (
WITH RECURSIVE spans (span) AS (
  SELECT min(span) FROM column_stats WHERE table_id = $table_id AND column_name = $column{n} AND span >= 0
  UNION ALL
  SELECT (SELECT min(c.span) FROM column_stats c
          WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span > spans.span)
  FROM spans WHERE spans.span IS NOT NULL
)
SELECT k.version, k.ordinal FROM spans CROSS JOIN LATERAL (
  SELECT c.version, c.ordinal FROM column_stats c
  WHERE c.table_id = $table_id AND c.column_name = $column{n} AND c.span = spans.span AND c.min_num = 0
    AND c.min_text >= substr(CAST($low{n} AS text), 1, CAST(spans.span AS integer)) AND c.min_text <= $high{n}
    AND (c.max_text >= $low{n} OR c.max_text IS NULL)
  OFFSET 0) k
) keys
