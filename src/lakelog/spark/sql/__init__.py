"""Spark's SQL over a lake's datasets."""
