"""The upkeep of tables, without Spark: vacuum, expiry of versions, and the check of everything that must be true."""
