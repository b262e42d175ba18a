"""The catalog in a schema of a PostgreSQL database."""
