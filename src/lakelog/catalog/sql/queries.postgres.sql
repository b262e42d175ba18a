-- Statements that read differently in PostgreSQL.

-- name: lock_head
-- The head of a table with its row lock and its advisory lock, if it is the expected one or none is expected, and the
-- catalog's format. Whoever waits for a row that then changes gets no row and no lock: all losers of a race know at once,
-- without queueing.
SELECT h.table_id, h.name, h.location, h.current_version, h.committed_at, h.metadata_since, h.protocol_since,
       h.created_at, h.dropped_at, (SELECT max(version) FROM lakelog_migrations) AS format,
       pg_advisory_xact_lock(hashtextextended(concat(h.tableoid, '/', h.table_id), 0))
FROM (SELECT tableoid, * FROM dl_tables
      WHERE table_id = $table_id AND current_version = coalesce($expected, current_version) FOR UPDATE) h

-- name: clock
-- The server's time now, and not that of BEGIN: read after the locks, it is later than every commit before.
SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)

-- name: register_write
-- The lease goes by the server's clock, whatever the client's says.
INSERT INTO dl_writes (directory, location, started_at, expires_at)
SELECT $directory, $location, now, now + CAST($length AS bigint)
FROM (SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) AS now) AS clock RETURNING directory

-- name: lock_lease
-- The lease of a write, for a commit that needs it. A vacuum that is ahead has deleted it by then.
SELECT directory FROM dl_writes WHERE directory = $directory FOR UPDATE

-- name: end_expired_writes
-- Leases that a commit has locked are left to it: nobody waits for anybody.
DELETE FROM dl_writes WHERE directory IN (
  SELECT directory FROM dl_writes WHERE location = $location AND expires_at <= $now
  FOR UPDATE SKIP LOCKED) RETURNING directory

-- name: line_up
-- A lock that who appends to whatever the head is takes before the row's, since those who wait for a row are woken in no
-- order, and one who waits for this one is next. It comes first of all locks, so that nobody waits in a circle.
SELECT pg_advisory_xact_lock(hashtextextended(concat('append ', tableoid, '/', table_id), 0))
FROM dl_tables WHERE table_id = $table_id

-- name: begin
-- READ COMMITTED, so that a writer that waited for the lock sees what was committed while it waited.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: guard
-- Limits for this transaction only, no commit that is not durable, no warning about one that is not told, and the lock
-- of the commit's own id.
SELECT set_config('lock_timeout', $limit, true), set_config('statement_timeout', $statement, true),
       set_config('idle_in_transaction_session_timeout', $statement, true),
       set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true),
       set_config('client_min_messages', 'warning', true),
       pg_advisory_xact_lock($commit)

-- name: guard_at_once
-- The same for a commit in one round trip, with the lock at which those line up who append to whatever the head is. Its
-- transaction is never idle, so if its client freezes while it sends, only the limit of newer servers ends it. That is
-- longer than those of its statements together, who can say what they waited for.
SELECT set_config('lock_timeout', $limit, true), set_config('statement_timeout', $statement, true),
       set_config(CASE WHEN CAST(current_setting('server_version_num') AS integer) < 170000
                  THEN 'idle_in_transaction_session_timeout' ELSE 'transaction_timeout' END, $transaction, true),
       set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true),
       set_config('client_min_messages', 'warning', true),
       pg_advisory_xact_lock($commit),
       CASE WHEN $anywhere
       THEN pg_advisory_xact_lock(hashtextextended(concat('append ', tableoid, '/', table_id), 0)) END
FROM dl_tables WHERE table_id = $table_id

-- name: make_void
-- Keeps a commit from coming any more. The lock of its id is held.
INSERT INTO dl_void_commits (commit_id, voided_at)
VALUES ($commit_id, CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)) ON CONFLICT DO NOTHING

-- name: server_encoding
SELECT current_setting('server_encoding')

-- name: is_standby
SELECT pg_is_in_recovery()

-- name: prove
-- Something to commit that changes nothing, needs no privilege, and is written to the log that standbys acknowledge.
SELECT pg_logical_emit_message(true, 'lakelog', '')

-- name: stop_waiting
-- Ends the wait for another lock of the transaction that holds a commit's own, and nothing else than a wait for a lock.
SELECT pg_cancel_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()
  AND l.database = a.datid AND (CAST(l.classid AS bigint) << 32) | CAST(l.objid AS bigint) = $commit
  AND a.wait_event_type = 'Lock'

-- name: forget_void
DELETE FROM dl_void_commits WHERE voided_at < CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) - $age

-- name: commit_at_once
-- A small commit in one statement: the head with its locks, as lock_head takes them, then the version and its rows, if
-- the head is one that the commit can stand on and none of the paths is live. Whoever waited for the row sees its new
-- head, but the paths as they were before, so a head that is not the one of the statement's own view is left alone. A
-- commit that comes after somebody has looked for it in vain comes too late, and one of a client that was made for another
-- format of the catalog is none. {leases} and {held} are there if the commit needs leases.
WITH head AS MATERIALIZED (
  SELECT h.*, pg_advisory_xact_lock(hashtextextended(concat(h.tableoid, '/', h.table_id), 0))
  FROM (SELECT tableoid, table_id, name, location, current_version, committed_at FROM dl_tables
        WHERE table_id = $table_id AND created_at = coalesce($created_at, created_at)
          AND current_version >= $expected AND ($anywhere OR current_version = $expected)
          AND metadata_since = $metadata_version AND protocol_since = $protocol_version AND dropped_at IS NULL
          AND NOT EXISTS (SELECT 1 FROM dl_void_commits WHERE commit_id = $commit_id)
          AND (SELECT max(version) FROM lakelog_migrations) = $format
        FOR UPDATE) h
), {leases} next AS MATERIALIZED (
  SELECT table_id, name, location, current_version + 1 AS version,
         greatest(committed_at + 1, CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)) AS committed_at
  FROM head
  WHERE current_version = (SELECT current_version FROM dl_tables WHERE table_id = $table_id)
    AND NOT EXISTS (
      SELECT 1 FROM (
        SELECT path, hashtextextended(path, 0) AS high, hashtextextended(path, 1) AS low
        FROM unnest(CAST($paths AS text[])) AS p (path) OFFSET 0) AS p
      CROSS JOIN LATERAL (
        SELECT 1 FROM dl_add_files f
        WHERE f.table_id = $table_id AND f.removed_version IS NULL AND f.path = p.path
          AND hashtextextended(f.path, 0) = p.high AND hashtextextended(f.path, 1) = p.low
        OFFSET 0) f) {held}
), {inserts}
UPDATE dl_tables t SET current_version = next.version, committed_at = next.committed_at
FROM next WHERE t.table_id = next.table_id
RETURNING next.version, next.committed_at, next.name, next.location,
          CAST(extract(epoch FROM clock_timestamp() - transaction_timestamp()) AS double precision)

-- name: leases_at_once
-- The leases of a small commit, locked in order, and after the head, as on the long way: nobody waits in a circle.
leases AS MATERIALIZED (
  SELECT directory FROM dl_writes WHERE EXISTS (SELECT 1 FROM head) AND directory = ANY (CAST($leases AS text[]))
  ORDER BY directory COLLATE "C" FOR UPDATE),

-- name: held_at_once
-- Whether all of them are there.
AND (SELECT count(*) FROM leases) = cardinality(CAST($leases AS text[]))

-- name: end_leases_at_once
-- Ends them with the version, and only with it: a DELETE in a CTE always runs, and COMMIT is on its way.
ended AS (DELETE FROM dl_writes w USING leases, next WHERE w.directory = leases.directory),

-- name: note_limits
-- Limits for this transaction only, which need not be durable.
SELECT set_config('lock_timeout', $limit, true), set_config('statement_timeout', $statement, true),
       set_config('synchronous_commit', 'off', true)

-- name: lock_creation
-- One creator at a time: whether two locations overlap is no unique index's business. Commits are not held up.
LOCK TABLE dl_tables IN SHARE UPDATE EXCLUSIVE MODE

-- name: live_path
-- The live row of the one path that a commit touches. The hashes are computed first: as a part of the search they make
-- it look dearer to the planner than all rows of a table that is young, and a prepared plan stays when it grows.
SELECT f.path, f.version, f.ordinal, f.deletion_vector, f.schema_version
FROM (SELECT hashtextextended($path, 0) AS high, hashtextextended($path, 1) AS low OFFSET 0) AS p CROSS JOIN LATERAL (
  SELECT f.path, f.version, f.ordinal, f.deletion_vector, f.schema_version FROM dl_add_files f
  WHERE f.table_id = $table_id AND f.removed_version IS NULL AND f.path = $path
    AND hashtextextended(f.path, 0) = p.high AND hashtextextended(f.path, 1) = p.low
  OFFSET 0) f

-- name: live_paths
-- The live rows of the paths that a commit touches. OFFSET 0 here and below keeps the planner from joining the other
-- way round where it has no statistics yet: one index search for each outer row, whatever it believes.
SELECT f.path, f.version, f.ordinal, f.deletion_vector, f.schema_version
FROM (
  SELECT path, hashtextextended(path, 0) AS high, hashtextextended(path, 1) AS low
  FROM unnest(CAST($paths AS text[])) AS p (path) OFFSET 0) AS p
CROSS JOIN LATERAL (
  SELECT f.path, f.version, f.ordinal, f.deletion_vector, f.schema_version FROM dl_add_files f
  WHERE f.table_id = $table_id AND f.removed_version IS NULL AND f.path = p.path
    AND hashtextextended(f.path, 0) = p.high AND hashtextextended(f.path, 1) = p.low
  OFFSET 0) f

-- name: close_removed
-- Marks the files that this commit's removes name as removed by it. They are live, as was looked up under the lock;
-- to say so here would offer the planner an index that it must not take.
UPDATE dl_add_files SET removed_version = $version
WHERE ctid = ANY (ARRAY(
  SELECT f.ctid FROM dl_remove_files r CROSS JOIN LATERAL (
    SELECT f.ctid FROM dl_add_files f
    WHERE f.table_id = $table_id AND f.version = r.added_version AND f.ordinal = r.added_ordinal
    OFFSET 0) f
  WHERE r.table_id = $table_id AND r.version = $version))

-- name: close_file
-- Marks one file as replaced by a re-added path; that it is live was looked up, as above.
UPDATE dl_add_files SET removed_version = $removed_version
WHERE table_id = $table_id AND version = $version AND ordinal = $ordinal

-- name: kept_files
-- The live files of a version whose keys a predicate kept.
WITH kept AS MATERIALIZED ({kept})
SELECT f.* FROM kept CROSS JOIN LATERAL (
  SELECT {columns} FROM dl_add_files f
  WHERE f.table_id = $table_id AND f.version = kept.version AND f.ordinal = kept.ordinal
    AND f.version <= $version AND (f.removed_version IS NULL OR f.removed_version > $version)
  OFFSET 0) f

-- name: touched_files
-- Each file that a commit after a version, up to another, added or removed, with the version that did so.
SELECT f.version AS touched_by, f.version, f.ordinal, true AS added, f.data_change, f.path, f.partition_values
FROM dl_add_files f WHERE f.table_id = $table_id AND f.version > $version AND f.version <= $last
UNION ALL
SELECT r.version AS touched_by, f.version, f.ordinal, false AS added, r.data_change, r.path, f.partition_values
FROM dl_remove_files r CROSS JOIN LATERAL (
  SELECT f.version, f.ordinal, f.partition_values FROM dl_add_files f
  WHERE f.table_id = $table_id AND f.version = r.added_version AND f.ordinal = r.added_ordinal
  OFFSET 0) f
WHERE r.table_id = $table_id AND r.version > $version AND r.version <= $last

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
-- Files whose strings in a column can lie in [low, high], by their bytes, whatever the database's locale.
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
    AND c.min_text >= substr(CAST($low{n} AS text), 1, CAST(spans.span AS integer)) COLLATE "C"
    AND c.min_text <= $high{n} COLLATE "C" AND (c.max_text >= $low{n} COLLATE "C" OR c.max_text IS NULL)
  OFFSET 0) k
) keys
