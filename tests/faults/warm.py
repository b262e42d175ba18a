"""Imported before processes are forked: what pyarrow and DuckDB would else look for in each of them anew."""

import duckdb
import pyarrow as pa
import sqlglot

pa.array([1])  # Imports pandas where it is there, which takes longer than most of what these processes do.

__all__ = ["duckdb", "sqlglot"]
