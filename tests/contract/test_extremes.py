"""Arguments beyond what databases, calendars and stacks can hold: answered, or refused by an error of ours."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog import ConfigurationError, DatasetNotFoundError, Lake, LakelogError, ValidationError
from tests.contract.samples import SCHEMA, add, commit, table
from tests.fixtures.lakes import execute, qualified


@pytest.mark.parametrize("limit", [2**63 - 1, 2**63, 10**30])
def test_a_limit_beyond_every_history_gives_all_of_it(limit: int, lake: Lake) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    assert dataset.history(limit) == dataset.history()
    assert len(dataset.history(limit)) == 1


@pytest.mark.parametrize(
    "timestamp",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_a_time_outside_of_the_calendar_is_refused(timestamp: datetime | str, lake: Lake) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    with pytest.raises(ValidationError, match="expected a datetime"):
        dataset.snapshot(timestamp=timestamp)
    assert dataset.snapshot(timestamp=datetime.max.replace(tzinfo=UTC)).version == 0


@pytest.mark.parametrize("size", [0, 10**30, True])
def test_a_pool_beyond_reason_is_refused(size: int, connect: Callable[..., Lake]) -> None:
    with pytest.raises(ConfigurationError, match="pool_size must be an integer from 1 to 10000"):
        connect(pool_size=size)


def struct(depth: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    return kind


def lists(depth: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def maps(depth: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.map_(pa.string(), kind)
    return kind


@pytest.mark.parametrize("nested", [struct, lists, maps])
def test_a_type_that_nests_too_deeply_is_refused_at_every_door(
    nested: Callable[[int], pa.DataType], lake: Lake, tmp_path: Path
) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    schema = pa.schema([("deep", nested(2000))])
    doors: list[Callable[[], object]] = [
        lambda: lake.create_dataset("deep", schema),
        lambda: lake.create_dataset("deep", schema, properties={"delta.columnMapping.mode": "name"}),
        lambda: lake.create_dataset("deep", schema, defaults={"deep": "NULL"}),
        lambda: dataset.replace(schema),
        lambda: dataset.add_column("deep", schema.field(0).type),
        lambda: lake.register_parquet(tmp_path, "deep", schema=schema),
    ]
    for door in doors:
        with pytest.raises(ValidationError, match="nested more than 100 levels deep"):
            door()
    assert [each.name for each in lake.datasets()] == ["events"]
    assert dataset.version == 0


def _nested(depth: int) -> list[object]:
    found: list[object] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "name", ["\ud800", "a\0", 5, None, _nested(100_000)], ids=["surrogate", "NUL", "number", "None", "nested"]
)
def test_a_name_that_no_dataset_can_have_is_not_found(lake: Lake, name: str) -> None:
    for door in (lake.dataset, lake.drop_dataset, lake.undrop_dataset, lambda name: lake.txn_version(name, "app")):
        with pytest.raises(DatasetNotFoundError):
            door(name)
    table(lake)
    with pytest.raises(ValidationError, match="app_id: expected a text"):
        lake.txn_version("events", name)


@pytest.mark.parametrize("leases", [5, None, [5, "a"], "abc", ["\ud800"], ["a\0"]])
def test_leases_that_are_no_directories_are_refused(lake: Lake, leases: object) -> None:
    events = table(lake)
    with pytest.raises(ValidationError, match="leases: expected"):
        commit(lake, events, add(), leases=leases)
    assert events.version == 0


@pytest.mark.parametrize("recorded", ["x", "\u00b2", "", "1e5", "9" * 5000, "-1"])
def test_a_largest_id_that_is_no_number_is_refused_by_what_needs_it(lake: Lake, recorded: str) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    events = lake.create_dataset("events", SCHEMA, properties=mapped, mirror=False)
    metadata = events.snapshot().metadata
    damaged = {**metadata.configuration, "delta.columnMapping.maxColumnId": recorded}
    commit(lake, events, replace(metadata, configuration=damaged))
    other = lake.create_dataset("other", SCHEMA, properties=mapped, mirror=False)
    for door in (
        lambda: events.restore(0),
        lambda: events.add_column("more", pa.int64()),
        lambda: lake.clone(other, "events", replace=True),
    ):
        with pytest.raises(ValidationError, match=r"maxColumnId: expected a whole number"):
            door()


def test_a_path_that_no_file_system_has_is_a_file_that_is_gone(lake: Lake) -> None:
    events = lake.create_dataset("events", SCHEMA, mirror=False)
    commit(lake, events, add("x" * 300))
    events.replace(SCHEMA)
    with pytest.raises(LakelogError, match="x" * 50):
        events.restore(1)
    assert events.restore(1, ignore_missing_files=True).files_restored == 0


def test_a_time_beyond_the_calendar_is_shown_as_its_last(lake: Lake) -> None:
    events = lake.create_dataset("events", SCHEMA, mirror=False)
    for name in ("dl_tables", "dl_table_versions"):
        execute(lake, f"UPDATE {qualified(lake, name)} SET committed_at = {2**63 - 2} WHERE table_id = {events.id}")
    assert [commit.timestamp for commit in events.history()] == [datetime.max.replace(tzinfo=UTC)]
