"""``_last_checkpoint``: by what a log says of its last checkpoint, readers begin to look. It is only a hint."""

from lakelog.delta_log.names import LARGEST_VERSION, LAST_CHECKPOINT
from lakelog.storage.log_store import MAX_HINT_BYTES, LogStore
from lakelog.strict_json import loads_strict


def last_checkpoint(store: LogStore) -> int | None:
    """The version that the hint names; None if there is no hint, or none that can be understood."""
    try:
        found = loads_strict(store.read(LAST_CHECKPOINT, MAX_HINT_BYTES).decode())
    except (OSError, ValueError):
        return None
    version = found.get("version") if isinstance(found, dict) else None
    return version if type(version) is int and 0 <= version <= LARGEST_VERSION else None
