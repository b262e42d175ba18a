"""Names of files that reach the disk: a new file is there after a power loss only if its directories are synced."""

import os
from contextlib import suppress
from pathlib import Path


def sync_directories(directory: Path) -> None:
    """Makes the names of a directory and of those above it durable, as far as they are ours to sync."""
    for each in (directory, *directory.parents):
        # File systems that have no such call need none, and what somebody else made is theirs.
        with suppress(OSError):
            descriptor = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
