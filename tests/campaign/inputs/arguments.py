"""Values that no sensible caller gives: of other types, beyond all bounds, or with characters that nobody sees."""

import dataclasses
import json
import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakelog
from lakelog import AddFiles, SqlTxnLogWriter, TransactionManager
from lakelog.actions import AddFile, DeletionVector, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from lakelog.schema import to_delta_json
from tests.campaign.inputs.world import World
from tests.contract.samples import SCHEMA
from tests.invariants import check_invariants

TEXTS = (
    "",
    " ",
    "a",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "\u202e",
    "\x1b[31m",
    "e\u0301",
    "\U0001f600" * 3,
    "../../etc/passwd",
    "%2e%2e/x",
    "%252e",
    "/",
    "//host/x",
    "s3://bucket/x",
    "file:///etc/passwd",
    "x" * 300,
    "x" * 70_000,
    "'; DROP TABLE dl_tables; --",
    '"',
    "`",
    "${x}",
    "%s %(x)s {x}",
    "NaN",
    "null",
    "1e999",
    "9" * 400,
    "_delta_log/0.json",
    "a\\b",
    "a\nb\r",
    "\u0130",
)

NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30, 10**400, True, False)
OTHERS = (
    b"",
    b"\xff",
    Decimal("NaN"),
    Decimal("1e999"),
    date.max,
    datetime.max.replace(tzinfo=UTC),
    timedelta.max,
    type,
)
FLOATS = (0.5, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1e308)


def value(rng: random.Random, depth: int = 2, deepest: int = 3000) -> Any:
    kind = rng.randrange(12 if depth else 9)
    if kind < 3:
        return text(rng)
    if kind < 5:
        return rng.choice(NUMBERS)
    if kind == 5:
        return rng.choice(FLOATS)
    if kind == 6:
        return None
    if kind == 7:
        return rng.choice(
            (*OTHERS, object(), np.int64(5), np.float64("nan"), pa.scalar(1), Path("x"), range(3), 1 + 2j)
        )
    if kind == 8:
        return deep(rng.choice((3, 150, deepest)), rng)
    inner = [value(rng, depth - 1, deepest) for _ in range(rng.randrange(4))]
    if kind == 9:
        return inner
    if kind == 10:
        return tuple(inner)
    return {rng.choice((text(rng), 5, None)): each for each in inner}


def text(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(TEXTS)
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x300), rng.randrange(0x11000))))
        for _ in range(rng.randrange(20))
    )


def deep(depth: int, rng: random.Random) -> Any:
    found: Any = 1
    as_list = rng.random() < 0.5
    for _ in range(depth):
        found = [found] if as_list else {"a": found}
    return found


_ACTIONS: tuple[Callable[[], Any], ...] = (
    lambda: AddFile(path="new.parquet", size=10, modification_time=0, stats='{"numRecords":1}'),
    lambda: RemoveFile(path="0.parquet"),
    lambda: Metadata(id="m", schema_string=to_delta_json(SCHEMA)),
    lambda: Protocol(min_reader_version=1, min_writer_version=2),
    lambda: Txn(app_id="app", version=1),
    lambda: DomainMetadata(domain="mine", configuration="{}"),
    lambda: DeletionVector(storage_type="i", path_or_inline_dv="00000", size_in_bytes=4, cardinality=1),
)


def odd_action(world: World, rng: random.Random) -> None:
    """One of the fields of one action of a commit is something else."""
    made = rng.choice(_ACTIONS)()
    # Some are right, so that something is taken.
    for each in rng.sample(dataclasses.fields(made), rng.choice((0, 0, 1, 1, 1, 2))):
        made = dataclasses.replace(made, **{each.name: value(rng)})
    if isinstance(made, DeletionVector):
        made = AddFile(path="v.parquet", size=10, modification_time=0, deletion_vector=made)
    events = world.events
    before = events.version
    extra = (
        {rng.choice(("operation", "operation_parameters", "committer", "extra")): value(rng)}
        if rng.random() < 0.3
        else {}
    )
    try:
        SqlTxnLogWriter(world.lake).commit(events.id, before + 1, [made], **extra)
    except lakelog.LakelogError:
        assert events.version == before, "a commit that was refused is there"
        raise
    # What was taken can be told again, and does no harm.
    events.snapshot().files()
    events.history(1)
    if rng.random() < 0.1:
        # Other inputs have damaged mirrors of this lake.
        check_invariants(world.lake, mirrors=False)
    world.events = world.table()


def odd_files(world: World, rng: random.Random) -> None:
    """Added files as a table in which a column is of another type, or has odd values."""
    count = rng.choice((1, 3, 300))
    columns: dict[str, Any] = {
        "path": [f"{number}.parquet" for number in range(count)],
        "size": [1] * count,
        "partition_values": ["{}"] * count,
        "stats": ['{"numRecords":1}'] * count,
        "modification_time": [0] * count,
    }
    if rng.random() < 0.7:
        name = rng.choice([*columns, "row_count", "tags", "deletion_vector", "extra", "strange"])
        try:
            # PyArrow takes minutes for a table of a type that is thousands deep.
            columns[name] = pa.array([value(rng, deepest=150) for _ in range(count)])
        except (pa.ArrowException, OverflowError, TypeError, ValueError, UnicodeEncodeError, RecursionError):
            columns[name] = pa.array([text(rng).encode(errors="ignore").decode() for _ in range(count)])
    dataset = world.table(commits=0)
    SqlTxnLogWriter(world.lake).commit(dataset.id, 1, [AddFiles(pa.table(columns))])
    assert dataset.snapshot().files().num_rows == count


def odd_schema(world: World, rng: random.Random) -> None:
    """Delta's text of a schema in which something is something else."""
    tree = json.loads(to_delta_json(SCHEMA))
    _spoil(tree, rng)
    try:
        text_of = json.dumps(tree)
    except (ValueError, RecursionError, TypeError):
        return
    if rng.random() < 0.3:
        cut = rng.randrange(len(text_of))
        text_of = text_of[:cut] + rng.choice(("", "\0", "{", '"')) + text_of[cut + rng.randrange(3) :]
    metadata = dataclasses.replace(world.events.snapshot().metadata, schema_string=text_of)
    dataset = world.table(commits=0)
    SqlTxnLogWriter(world.lake).commit(dataset.id, 1, [metadata])
    assert dataset.snapshot().schema is not None


def _spoil(tree: Any, rng: random.Random) -> None:
    """Changes something in a tree of JSON."""
    while isinstance(tree, dict | list) and tree:
        key = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        if rng.random() < 0.4 or not isinstance(tree[key], dict | list) or not tree[key]:
            found = value(rng)
            if isinstance(tree, dict) and rng.random() < 0.2:
                del tree[key]
            else:
                tree[key] = found if _is_json(found) else None
            return
        tree = tree[key]


def _is_json(found: Any) -> bool:
    try:
        json.dumps(found)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def odd_property(world: World, rng: random.Random) -> None:
    known = (
        "delta.appendOnly",
        "delta.checkpointInterval",
        "delta.columnMapping.mode",
        "delta.columnMapping.maxColumnId",
        "delta.deletedFileRetentionDuration",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.minReaderVersion",
        "delta.feature.appendOnly",
        "delta.constraints.c",
        "delta.targetFileSize",
        "lakelog.mirror",
    )
    said = {rng.choice((*known, text(rng))): rng.choice((text(rng), value(rng), str(rng.choice(NUMBERS))))}
    if rng.random() < 0.5:
        world.table(commits=1, properties=said).vacuum(dry_run=True)
        return
    dataset = world.table(commits=1)
    dataset.set_properties(said)
    dataset.vacuum(dry_run=True)
    dataset.mirror()
    dataset.restore(0)


def odd_name(world: World, rng: random.Random) -> None:
    lake, name = world.lake, rng.choice((text(rng), value(rng)))
    door = rng.randrange(9)
    if door == 0:
        created = lake.create_dataset(name, SCHEMA)
        assert lake.dataset(name).id == created.id
    elif door == 1:
        lake.rename_dataset(world.table(commits=0).name, name)
        assert name in lake.versions()
    elif door == 2:
        lake.dataset(name)
    elif door == 3:
        lake.drop_dataset(name)
    elif door == 4:
        lake.undrop_dataset(name)
    elif door == 5:
        lakelog.connect(name, create=False).close()
    elif door == 6:
        url = rng.choice(("sqlite:///", "duckdb:///", "postgresql://", "postgresql://u:p@", "mysql://"))
        lakelog.connect(f"{url}{text(rng)}", create=False, timeout=1).close()
    elif door == 7:
        lake.create_dataset(f"t{world.number}", SCHEMA, location=name)
    else:
        lake.import_delta(name)


def odd_time(world: World, rng: random.Random) -> None:
    at = rng.choice((value(rng), text(rng), rng.choice(NUMBERS), f"{rng.randrange(-9999, 99999)}-01-01T00:00:00Z"))
    found = world.events.snapshot(timestamp=at)
    assert 0 <= found.version <= world.events.version


def odd_argument(world: World, rng: random.Random) -> None:
    """One argument of one door is something else."""
    lake, events = world.lake, world.events
    odd = value(rng)
    doors: tuple[Callable[[], object], ...] = (
        lambda: events.snapshot(odd),
        lambda: events.history(odd),
        lambda: events.changes(odd),
        lambda: events.changes(0, odd),
        lambda: events.snapshot().files(columns=odd),
        lambda: events.snapshot().files(odd),
        lambda: events.snapshot().domain(odd),
        lambda: events.scan(version=odd),
        lambda: events.vacuum(odd, dry_run=True),
        lambda: events.expire_versions(keep_last=odd),
        lambda: world.table(commits=1).restore(odd),
        lambda: events.add_column(odd, pa.int64()),
        lambda: events.add_column("more", odd),
        lambda: events.rename_column("name", odd),
        lambda: events.rename_column(odd, "x"),
        lambda: events.drop_column(odd),
        lambda: events.widen_column("id", odd),
        lambda: events.set_comment("id", odd),
        lambda: events.make_nullable(odd),
        lambda: events.add_feature(odd),
        lambda: events.upgrade_protocol(odd, 2),
        lambda: events.plan_write(odd),
        lambda: events.txn_version(odd),
        lambda: events.unset_properties(odd),
        lambda: events.drop_constraint(odd),
        lambda: events.generate(odd),
        lambda: lake.create_dataset(f"t{world.number}", odd),
        lambda: lake.create_dataset(f"t{world.number}", SCHEMA, odd),
        lambda: lake.create_dataset(f"t{world.number}", SCHEMA, mirror=odd),
        lambda: lake.create_dataset(f"t{world.number}", SCHEMA, description=odd),
        lambda: lake.clone(events, f"t{world.number}", odd),
        lambda: lake.clone(odd, f"t{world.number}"),
        lambda: lake.register_parquet(odd, f"t{world.number}"),
        lambda: lake.check(odd),
        lambda: lake.commit_status(odd),
        lambda: lake.dataset_at(odd),
        lambda: SqlTxnLogWriter(lake).commit(odd, 1, []),
        lambda: SqlTxnLogWriter(lake).commit(events.id, odd, []),
        lambda: SqlTxnLogWriter(lake).commit(events.id, 1, odd),
        lambda: SqlTxnLogWriter(lake).append(odd, []),
        lambda: SqlTxnLogWriter(lake).append(events.id, [], leases=odd),
        lambda: SqlTxnLogWriter(lake).append(events.id, [odd]),
        lambda: TransactionManager(lake).begin(odd),
        lambda: TransactionManager(lake).begin(events.id, odd).rollback(),
        lambda: lakelog.connect(f"sqlite:///{world.directory}/other.db", odd).close(),
        lambda: lakelog.connect(f"sqlite:///{world.directory}/other.db", timeout=odd).close(),
        lambda: lakelog.connect(f"sqlite:///{world.directory}/other.db", pool_size=odd).close(),
        lambda: lakelog.connect(f"sqlite:///{world.directory}/other.db", schema=odd).close(),
        lambda: lakelog.connect(f"sqlite:///{world.directory}/other.db", mirror=odd).close(),
        lambda: lakelog.connect(f"sqlite:///{world.directory}/other.db", durability=odd).close(),
        lambda: lakelog.connect(odd).close(),
    )
    try:
        rng.choice(doors)()
    finally:
        world.events = world.table() if rng.random() < 0.1 else events
