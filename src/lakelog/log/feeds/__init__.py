"""Reading the log from one version to another: what commits appended and changed."""
