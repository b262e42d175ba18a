"""Operations that race for a table, done as Spark's doors do them, but without Spark."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog import Dataset, Lake, SqlTxnLogWriter
from lakelog.changes.changeset import Contents
from lakelog.changes.conflicts import Reads
from lakelog.changes.retry import commit_with_retries
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.log.commit.draft import Description
from lakelog.log.pruning.predicate import Predicate
from lakelog.log.pruning.reader import parse
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.parquet.footers import WrittenFile, harvest
from lakelog.spark.write.prepared_change import PreparedChange, prepared_from
from lakelog.storage.uris import Storage, uri_of
from tests.contract.interleaving import step
from tests.contract.samples import stats
from tests.contract.upkeep_tables import new_file, numbers
from tests.contract.watched import FILES, WRITTEN

Rows = Mapping[str, list[int]]
"""The ids in each table."""

OLD, HEAD = 2, 4
"""The version to which operations go back, and the one from which they start."""

BEFORE: Rows = {"events": [1, 2, 3, 4], "archive": []}
START: Rows = {"events": [3, 4, 5, 6], "archive": []}
"""The rows of these versions."""

_RETRIES = 10
_REMOVED = ["path", "partition_values", "size", "deletion_vector"]


@dataclass(frozen=True)
class Operation:
    """Something that is done to ``events``, by one of two who may do the same."""

    name: str
    run: Callable[[Lake, int], int | None]
    """Returns the version of ``events`` that it made, if it made one."""
    effect: Callable[[Rows, int], Rows]
    """What it does to rows if nobody else does anything."""


def append(lake: Lake, *ids: int) -> int | None:
    events = lake.dataset("events")
    return _change(events, events.snapshot(), Reads(), ids).commit(lake, _RETRIES)


def put(lake: Lake, new: int) -> int:
    """Adds a file of the caller's, by the door that PostgreSQL has a single statement for."""
    events = lake.dataset("events")
    with step() as touched:
        touched.adds.add(WRITTEN)
        file = new_file(events, f"{new}.parquet", new)
    return SqlTxnLogWriter(lake).append(events.id, [replace(file, stats=stats(1, id=(new, new)))]).version


def overwrite(lake: Lake, *ids: int) -> int | None:
    events = lake.dataset("events")
    snapshot = events.snapshot()
    return _change(events, snapshot, Reads(everything=True), ids, snapshot.files()).commit(lake, _RETRIES)


def delete(lake: Lake, last: int) -> int | None:
    """Deletes the ids up to one."""
    events = lake.dataset("events")
    return _deletion(events, events.snapshot(), f"id <= {last}", range(last + 1)).commit(lake, _RETRIES)


def compact(lake: Lake) -> int | None:
    events = lake.dataset("events")
    snapshot = events.snapshot()
    files = snapshot.files()
    if files.num_rows < 2:
        return None
    ids = [each for file in _ids(events, files) for each in file]
    return _change(events, snapshot, Reads(data_change=False), ids, files, data_change=False).commit(lake, _RETRIES)


def move(lake: Lake, moved: int, source: str = "events", target: str = "archive") -> int | None:
    """Moves an id from a table to another, by one commit."""
    heads = {head.name: head for head in lake.heads()}
    datasets = [Dataset(lake, heads[name]) for name in (source, target)]
    before, after = (each.snapshot(heads[each.name].version) for each in datasets)
    leaves = _deletion(datasets[0], before, f"id = {moved}", [moved])
    if leaves.contents is None:
        return None
    # One step, as the end below: of the other table's files only another move knows, which meets this one's commit.
    with step():
        arrives = _change(datasets[1], after, Reads(), [moved])
    directories = [*leaves.directories, *arrives.directories]
    with ExitStack() as stack:
        for own in directories:
            stack.push(own)
        changes = [
            prepared_from(each.contents, each.base_version, each.reads) for each in (leaves, arrives) if each.contents
        ]
        return commit_with_retries(lake.committer, changes, retries=_RETRIES)[0].version


def vacuum(lake: Lake) -> None:
    report = lake.dataset("events").vacuum(0, force=True)
    assert report.failures == ()


def expire(lake: Lake) -> None:
    lake.dataset("events").expire_versions(keep_last=1)


def upkeep(lake: Lake) -> None:
    """What a nightly job does."""
    expire(lake)
    vacuum(lake)


def restore(lake: Lake) -> int | None:
    return lake.dataset("events").restore(OLD, retries=_RETRIES).version


def clone(lake: Lake) -> None:
    lake.clone("events", "copy", OLD)


def _with_one_more(rows: Rows, number: int) -> Rows:
    return {**rows, "events": [*rows["events"], 100 + number]}


def _unchanged(rows: Rows, number: int) -> Rows:
    return rows


OPERATIONS = (
    Operation("append", lambda lake, number: append(lake, 100 + number), _with_one_more),
    Operation("put", lambda lake, number: put(lake, 100 + number), _with_one_more),
    Operation(
        "overwrite",
        lambda lake, number: overwrite(lake, 200 + number),
        lambda rows, number: {**rows, "events": [200 + number]},
    ),
    Operation(
        "delete",
        lambda lake, number: delete(lake, 3),
        lambda rows, number: {**rows, "events": [each for each in rows["events"] if each > 3]},
    ),
    Operation("compact", lambda lake, number: compact(lake), _unchanged),
    Operation(
        "move",
        lambda lake, number: move(lake, 5),
        lambda rows, number: {
            **rows,
            "events": [each for each in rows["events"] if each != 5],
            "archive": rows["archive"] + [each for each in rows["events"] if each == 5],
        },
    ),
    Operation("restore", lambda lake, number: restore(lake), lambda rows, number: {**rows, "events": BEFORE["events"]}),
    Operation("clone", lambda lake, number: clone(lake), lambda rows, number: {**rows, "copy": BEFORE["events"]}),
    Operation("vacuum", lambda lake, number: vacuum(lake), _unchanged),
    Operation("expire", lambda lake, number: expire(lake), _unchanged),
    Operation("upkeep", lambda lake, number: upkeep(lake), _unchanged),
)


def rows_of(dataset: Dataset, version: int | None = None) -> list[int]:
    """The ids in the files of a version, wherever they lie."""
    return sorted(each for file in _ids(dataset, dataset.snapshot(version).files()) for each in file)


def _ids(dataset: Dataset, files: Any) -> list[list[int]]:
    """By file."""
    storage = Storage()
    with step() as touched:
        touched.reads.add(FILES)
        places = [storage.at(uri_of(dataset.location, path))[1] for path in files.column("path").to_pylist()]
        return [pq.ParquetFile(place).read(use_threads=False).column("id").to_pylist() for place in places]


def _deletion(dataset: Dataset, snapshot: Snapshot, where: str, ids: Iterable[int]) -> PreparedChange[int | None]:
    """Files that have some of the ids go, and one comes with what else was in them."""
    gone, predicate = set(ids), _predicate(where)
    files = snapshot.files(predicate)
    found = _ids(dataset, files)
    matched = [place for place, file in enumerate(found) if not gone.isdisjoint(file)]
    left = [each for place in matched for each in found[place] if each not in gone]
    return _change(dataset, snapshot, Reads(predicates=(predicate,)), left, files.take(pa.array(matched, pa.int64())))


@cache
def _predicate(where: str) -> Predicate:
    return parse(where, {"id": pa.int64()})


def _change(
    dataset: Dataset,
    snapshot: Snapshot,
    reads: Reads,
    ids: Iterable[int] = (),
    removed: Any = None,
    *,
    data_change: bool = True,
) -> PreparedChange[int | None]:
    """Writes the file that comes."""
    contents = Contents(table_id=dataset.id, description=Description(operation_parameters={}, extra={}))
    with OwnDirectory(dataset.committer, dataset.location) as own:
        if written := list(ids):
            found = _written(dataset, snapshot, own, written, data_change)
            contents = replace(contents, adds=found.adds, row_groups=found.row_groups, leases=own.leases)
        if removed is not None:
            flags = pa.repeat(data_change, removed.num_rows)
            contents = replace(contents, removes=removed.select(_REMOVED).append_column("data_change", flags))
    return PreparedChange(
        contents=None if contents.is_nothing else contents,
        base_version=snapshot.version,
        reads=reads,
        told=lambda result: None if result is None else result.version,
        directories=(own,),
    )


def _written(dataset: Dataset, snapshot: Snapshot, own: OwnDirectory, ids: list[int], data_change: bool) -> Any:
    own.begin()
    path = f"{own.name}/part-0.parquet"
    place = Path(dataset.location, path)
    with step() as touched:
        touched.adds.add(WRITTEN)
        place.parent.mkdir(parents=True)
        pq.write_table(numbers(*ids), place)
    file = WrittenFile(path, str(place), place.stat().st_size, 0, {})
    metadata = snapshot.state.metadata
    return harvest([file], metadata.physical, metadata.indexed, data_change=data_change)
