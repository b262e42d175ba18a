"""From a URL to an engine: what ``lakelog.connect`` does, whoever holds the result."""

import os
from typing import TypeVar

from lakelog.arguments import PATH
from lakelog.catalog.url import catalog_for
from lakelog.errors import ConfigurationError
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.durability import DURABILITIES
from lakelog.log.validation.text import name_problem
from lakelog.mirror.publisher import MODES
from lakelog.opening.engine import Engine
from lakelog.storage.locations import removing_new_directories, root_directory
from lakelog.strict_json import describe, is_text
from lakelog.telemetry import observe_pool

_Engine = TypeVar("_Engine", bound=Engine)

_MOST_CONNECTIONS = 10_000


def open_engine(
    kind: type[_Engine],
    url: str,
    root: str | os.PathLike[str] | None = None,
    *,
    pool_size: int = 10,
    timeout: float = 30.0,
    schema: str = "lakelog",
    create: bool = True,
    upgrade: bool = False,
    prepare_threshold: int | None = 5,
    mirror: str = "sync",
    durability: str = "full",
) -> _Engine:
    """An engine of a kind. See ``lakelog.connect``."""
    if not isinstance(pool_size, int) or isinstance(pool_size, bool) or not 1 <= pool_size <= _MOST_CONNECTIONS:
        raise ConfigurationError(
            f"pool_size must be an integer from 1 to {_MOST_CONNECTIONS}, not {describe(pool_size)}"
        )
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < 1e6:
        raise ConfigurationError(f"timeout must be a positive number of seconds, not {describe(timeout)}")
    if not is_text(schema) or not 0 < len(schema.encode()) <= 63 or name_problem(schema):
        raise ConfigurationError(f"schema must be a PostgreSQL identifier of 1 to 63 bytes, not {describe(schema)}")
    if root is not None and not PATH.fits(root):
        raise ConfigurationError(f"root must be a path or a URI, not {describe(root)}")
    if durability not in DURABILITIES:
        raise ConfigurationError(f"durability must be one of {', '.join(DURABILITIES)}, not {describe(durability)}")
    catalog = catalog_for(
        url, pool_size=pool_size, timeout=float(timeout), schema=schema, prepare_threshold=prepare_threshold
    )
    if mirror not in MODES:
        raise ConfigurationError(f"mirror must be one of {', '.join(MODES)}, not {describe(mirror)}")
    with removing_new_directories(url, root):
        directory = root_directory(url, root, create=create)
        catalog.open(create=create, upgrade=upgrade)
    observe_pool(catalog)
    return kind(Committer(catalog, float(timeout), durability), directory, mirror)
