"""A table's rules on its rows: whether they are sound, and what enforces them."""
