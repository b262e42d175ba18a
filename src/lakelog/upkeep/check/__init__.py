"""The check of everything that must be true of a dataset."""
