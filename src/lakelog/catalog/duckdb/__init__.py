"""The catalog in a DuckDB file."""
