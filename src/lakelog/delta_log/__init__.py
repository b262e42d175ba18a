"""Any Delta log, read: its listing, its JSON commits and its checkpoints of every kind, wherever it lies."""
