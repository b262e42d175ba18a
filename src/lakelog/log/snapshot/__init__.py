"""Reading the log at one version: its files, by which schemas they are read, and what a condition leaves of them."""
