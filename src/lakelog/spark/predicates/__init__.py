"""What conditions mean, by Spark's own analysis, and whether they mean the same each time."""
