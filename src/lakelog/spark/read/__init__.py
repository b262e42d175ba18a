"""Reading: exactly the files of a version, as native DataFrames."""
