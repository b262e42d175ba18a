"""Tables that exist become datasets: Delta tables with their logs, and Parquet files."""
