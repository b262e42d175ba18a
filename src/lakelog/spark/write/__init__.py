"""Writing: Parquet files in a directory of their own, and the change that makes them part of a table."""
