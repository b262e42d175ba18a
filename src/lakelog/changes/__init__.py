"""A change before it is committed: what it needs, what conflicts with it, its lease, and when it is tried again."""
