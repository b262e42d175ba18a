"""Delete, update and merge: the files that hold a row to be changed are written again, and no others."""
