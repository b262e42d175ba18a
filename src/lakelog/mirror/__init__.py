"""Delta in and out: the ``_delta_log`` beside every table, and tables that come from one."""
