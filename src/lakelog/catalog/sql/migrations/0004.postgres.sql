-- From format 3 to 4: names that are found without regard to case. Lakelog fills name_key after this. A process of
-- format 3 that is still there cannot make a table any more.

ALTER TABLE dl_tables ADD COLUMN name_key text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE dl_tables ALTER COLUMN name_key DROP DEFAULT;
UPDATE dl_tables SET name_key = E'\x01' || table_id;
ALTER TABLE dl_tables ADD COLUMN has_twin boolean NOT NULL DEFAULT false;
DROP INDEX dl_tables_live_name;
CREATE UNIQUE INDEX dl_tables_live_name ON dl_tables (name_key, (CASE WHEN has_twin THEN name ELSE '' END COLLATE "C"))
WHERE dropped_at IS NULL;

-- Texts in indexes are ordered by their bytes, whatever the operating system's locale is or becomes.
ALTER TABLE dl_txn_actions ALTER COLUMN app_id TYPE text COLLATE "C";
ALTER TABLE dl_domain_metadata ALTER COLUMN domain TYPE text COLLATE "C";
ALTER TABLE dl_writes ALTER COLUMN directory TYPE text COLLATE "C";
ALTER TABLE partitions ALTER COLUMN key TYPE text COLLATE "C";

-- A process of format 3 compares formats only when it connects: by the names that it knows, it finds no head any more.
ALTER TABLE dl_tables RENAME COLUMN metadata_version TO metadata_since;
ALTER TABLE dl_tables RENAME COLUMN protocol_version TO protocol_since;
