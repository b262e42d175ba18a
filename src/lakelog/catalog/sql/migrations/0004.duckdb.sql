-- From format 3 to 4: names that are found without regard to case. Lakelog fills name_key and has_twin after this.

ALTER TABLE dl_tables ADD COLUMN name_key text;
-- In one statement DuckDB would change a setting, which is locked.
ALTER TABLE dl_tables ADD COLUMN has_twin boolean;
ALTER TABLE dl_tables ALTER COLUMN has_twin SET DEFAULT false;

-- A process of format 3 compares formats only when it connects: by the names that it knows, it finds no head any more.
ALTER TABLE dl_tables RENAME COLUMN metadata_version TO metadata_since;
ALTER TABLE dl_tables RENAME COLUMN protocol_version TO protocol_since;
