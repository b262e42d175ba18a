"""Streams into a table and out of one."""
