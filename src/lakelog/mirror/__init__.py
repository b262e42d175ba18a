"""The mirror: every commit becomes a file of the table's ``_delta_log``, for any reader of Delta tables."""
