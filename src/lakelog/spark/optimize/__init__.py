"""The same rows in better files."""
