"""The catalog in a SQLite file."""
