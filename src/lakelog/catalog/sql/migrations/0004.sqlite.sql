-- From format 3 to 4: names that are found without regard to case. Lakelog fills name_key after this. A process of
-- format 3 that is still there cannot make a table any more.

ALTER TABLE dl_tables ADD COLUMN name_key TEXT;
ALTER TABLE dl_tables ADD COLUMN has_twin INTEGER NOT NULL DEFAULT 0 CHECK (has_twin IN (0, 1));
DROP INDEX dl_tables_live_name;
CREATE UNIQUE INDEX dl_tables_live_name ON dl_tables (name_key, (CASE WHEN has_twin THEN name ELSE '' END))
WHERE dropped_at IS NULL;
CREATE TRIGGER dl_tables_name_key BEFORE INSERT ON dl_tables WHEN NEW.name_key IS NULL
BEGIN SELECT RAISE(ABORT, 'name_key is missing: the catalog has format 4, upgrade the lakelog package'); END;

-- A process of format 3 compares formats only when it connects: by the names that it knows, it finds no head any more.
ALTER TABLE dl_tables RENAME COLUMN metadata_version TO metadata_since;
ALTER TABLE dl_tables RENAME COLUMN protocol_version TO protocol_since;
