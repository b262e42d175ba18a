"""Parquet files: what their footers say. Nothing here needs Spark."""
