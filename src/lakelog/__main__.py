"""``python -m lakelog``: the command line, where its script is not on the path."""

from lakelog.cli import app

app(prog_name="lakelog")
