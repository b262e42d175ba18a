"""Random histories of rows, columns and restorations: every version shows for ever what it showed when it was made."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakelog import Dataset, Lake, ValidationError
from lakelog.actions import RemoveFile
from tests.contract.evolution import SCHEMA, data
from tests.contract.samples import commit, paths
from tests.invariants import check_invariants
from tests.parquet import read, write

STEPS = 20


class History:
    """A table, and what each of its versions showed."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lake = lake
        self.dataset: Dataset = lake.create_dataset("events", SCHEMA, mirror=self.chance.random() < 0.3)
        self.number = 0
        self.seen = {0: self.shown()}

    def shown(self, version: int | None = None) -> tuple[list[Any], Any]:
        snapshot = self.dataset.snapshot(version)
        return sorted(read(snapshot, self.dataset.location).to_pylist(), key=str), snapshot.schema

    def step(self) -> None:
        self.number += 1
        steps: list[Callable[[], Any]] = [
            *[self.append] * 3,
            self.remove,
            lambda: self.dataset.add_column(f"c{self.number}", self.chance.choice([pa.int32(), pa.string()])),
            lambda: self.dataset.rename_column(self.column(), f"r{self.number}"),
            lambda: self.dataset.drop_column(self.column()),
            lambda: self.dataset.widen_column(self.column(pa.int32()), pa.int64()),
            lambda: self.append(text=self.column(pa.int32())),
            *[self.restore] * 3,
        ]
        try:
            self.chance.choice(steps)()
        except ValidationError:  # the last column is not dropped, and what is no number is not widened
            return
        self.seen.setdefault(self.dataset.version, self.shown())

    def column(self, kind: pa.DataType | None = None) -> str:
        """A column by chance, of a type if there is one of it."""
        schema = self.dataset.schema()
        fields = [field.name for field in schema if kind is None or field.type == kind] or schema.names
        return str(self.chance.choice(fields))

    def append(self, text: str | None = None) -> None:
        """Rows of this step's number, with a column as text that may have been none."""
        values: dict[str, pa.Array] = {}
        for field in self.dataset.schema():
            is_text = pa.types.is_string(field.type) or field.name == text
            values[field.name] = pa.array([f"t{self.number}"]) if is_text else pa.array([self.number], field.type)
        write(self.lake, self.dataset, data(**values), schema_merge=True, promote_to_string=True)

    def remove(self) -> None:
        live = paths(self.dataset.snapshot().files())
        gone = [path for path in live if self.chance.random() < 0.5]
        commit(self.lake, self.dataset, *(RemoveFile(path=path) for path in gone))

    def restore(self) -> None:
        version = self.chance.choice(list(self.seen))
        self.dataset.restore(version)
        rows, schema = self.shown()
        assert rows == self.seen[version][0], f"version {version} restored as {self.dataset.version}"
        assert schema.equals(self.seen[version][1], check_metadata=True)


@pytest.mark.parametrize("seed", range(6))
def test_every_version_shows_what_it_showed_whatever_was_restored_since(lake: Lake, seed: int) -> None:
    history = History(lake, seed)
    for _ in range(STEPS):
        history.step()
    for version, (rows, _) in history.seen.items():
        assert history.shown(version)[0] == rows, f"version {version}"
    check_invariants(lake)
