-- From format 3 to 4: names that are found without regard to case. Lakelog fills name_key and has_twin after this.

ALTER TABLE dl_tables ADD COLUMN name_key text;
-- In one statement DuckDB would change a setting, which is locked.
ALTER TABLE dl_tables ADD COLUMN has_twin boolean;
ALTER TABLE dl_tables ALTER COLUMN has_twin SET DEFAULT false;
