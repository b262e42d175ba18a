"""Where hostile inputs are tried: a catalog with some tables, and things to damage."""

import itertools
from pathlib import Path
from typing import Self

import pyarrow as pa

from lakelog import Dataset, Lake, SqlTxnLogWriter, connect
from tests.contract.samples import SCHEMA, add, stats


class World:
    """A lake of its own, made anew for some hundreds of inputs."""

    def __init__(self, directory: Path, backend: str, url: str | None = None) -> None:
        self.directory = directory
        self.backend = backend
        self.url = url or f"{backend}:///{directory}/catalog.db"
        """An empty database of a server, or a file."""
        directory.mkdir(parents=True)
        self._numbers = itertools.count()
        self.lake: Lake = connect(self.url, root=directory / "lake")
        self.events = self.table()
        self.conditions: Dataset | None = None
        """The table that conditions are tried on."""

    def another_url(self, place: Path) -> str:
        """A catalog that another process may open, too."""
        return self.url if self.backend == "postgres" else f"{self.backend}:///{place}/catalog.db"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lake.close()

    def place(self) -> Path:
        """A directory that nobody has yet."""
        found = self.directory / f"place-{next(self._numbers)}"
        found.mkdir()
        return found

    def table(self, commits: int = 3, schema: pa.Schema = SCHEMA, **options: object) -> Dataset:
        dataset = self.lake.create_dataset(f"table{next(self._numbers)}", schema, **options)  # type: ignore[arg-type]
        writer = SqlTxnLogWriter(self.lake)
        for number in range(commits):
            file = add(f"{number}.parquet", stats=stats(3, id=(number, number + 5)))
            writer.commit(dataset.id, number + 1, [file])
        return dataset

    @property
    def number(self) -> int:
        return next(self._numbers)
