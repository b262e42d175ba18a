"""Delta logs, checkpoints and footers in which bytes, lines or values are not what they were."""

import contextlib
import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog import Dataset, LakelogError, SqlTxnLogWriter, connect
from tests.campaign.inputs.arguments import TEXTS, value
from tests.campaign.inputs.world import World
from tests.contract.samples import SCHEMA, add, stats


def before_import(world: World, rng: random.Random) -> None:
    """What delta-rs reads, too, has the same files for both."""
    place = _copy_of(_written(world), world)
    log = place / "_delta_log"
    for checkpoint in (*log.glob("*.parquet"), log / "_last_checkpoint"):
        checkpoint.unlink(missing_ok=True)
    _spoil(rng.choice(sorted(log.glob("*.json"))), rng)
    _compare(world, place)


def damaged_checkpoint(world: World, rng: random.Random) -> None:
    """Without the commits before it."""
    place = _copy_of(_written(world), world)
    log = place / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for commit in sorted(log.glob("*.json")):
        if commit.name <= checkpoint.name.replace(".checkpoint.parquet", ".json"):
            commit.unlink()
    data = bytearray(checkpoint.read_bytes())
    for _ in range(rng.choice((1, 3, 20))):
        # Rather in the footer, which is the last part.
        at = rng.randrange(len(data)) if rng.random() < 0.4 else rng.randrange(len(data) // 2, len(data))
        if rng.random() < 0.1:
            del data[at : at + rng.choice((1, 100))]
        elif at < len(data):
            data[at] = rng.choice((data[at] ^ (1 << rng.randrange(8)), rng.randrange(256)))
    checkpoint.write_bytes(data)
    name = f"imported{world.number}"
    dataset = world.lake.import_delta(place, name).dataset
    assert dataset is not None
    dataset.snapshot().files()


def after_import(world: World, rng: random.Random) -> None:
    """Whatever becomes of the files beside a table, its commits stand: one that began here, or was imported."""
    dataset = world.table() if rng.random() < 0.5 else _imported(world, rng)
    log = Path(dataset.location) / "_delta_log"
    files = sorted(log.glob("*.json"))
    chosen = rng.choice((rng.choice(files), log / f"{dataset.version + 1:020}.json", log / "_last_checkpoint"))
    if not chosen.exists():
        shutil.copy(files[-1], chosen)
    if rng.random() < 0.1:
        chosen.unlink()
    else:
        _spoil(chosen, rng)
    before = dataset.version
    try:
        more = add("more.parquet", partition_values=dict.fromkeys(dataset.snapshot().metadata.partition_columns))
        version = SqlTxnLogWriter(world.lake).append(dataset.id, [more]).version
        assert version == dataset.version == before + 1
    finally:
        assert dataset.version in (before, before + 1)
        dataset.mirror_status()
        world.lake.check(dataset.name, deep=False)
        for look_after in rng.sample((Dataset.mirror, _vacuum, _expire, Dataset.adopt), 2):
            with contextlib.suppress(LakelogError):
                look_after(dataset)


def _imported(world: World, rng: random.Random) -> Dataset:
    place = _copy_of(_written(world), world)
    dataset = world.lake.import_delta(place, f"imported{world.number}", history=rng.random() < 0.5).dataset
    assert dataset is not None
    return dataset


def _vacuum(dataset: Dataset) -> None:
    dataset.vacuum(0, force=True)


def _expire(dataset: Dataset) -> None:
    dataset.expire_versions(keep_last=1)


def damaged_footer(world: World, rng: random.Random) -> None:
    """Of a file that is registered. It would end this process, if that opened it."""
    place = world.place()
    file = place / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 2**53 + 1], "x": [0.5, None, 1e300], "s": ["a", "b" * 100, None]}), file)
    data = bytearray(file.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(footer, len(data))
        data[at] = rng.choice((data[at] ^ (1 << rng.randrange(8)), rng.randrange(256)))
    file.write_bytes(data)
    world.lake.register_parquet(place, f"registered{world.number}", mirror=False)


def _written(world: World) -> Path:
    return _cached(world.directory)


@cache
def _cached(directory: Path) -> Path:
    """A table with commits of every kind, and a checkpoint of the last but one."""
    place = directory / "written"
    with connect(f"sqlite:///{directory}/written.db", root=place) as lake:
        dataset = lake.create_dataset("t", SCHEMA, ["day"], {"delta.checkpointInterval": "5"})
        writer = SqlTxnLogWriter(lake)
        for number in range(1, 6):
            values = {"day": rng_day(number)}
            file = add(f"{number}.parquet", stats=stats(3, id=(number, 9)), partition_values=values)
            writer.commit(dataset.id, number, [file])
        dataset.add_column("more", pa.float64())
        dataset.mirror()
        location = Path(dataset.location)
    assert list((location / "_delta_log").glob("*.checkpoint.parquet"))
    return location


def rng_day(number: int) -> str | None:
    return None if number == 3 else f"2026-01-0{number}"


def _copy_of(written: Path, world: World) -> Path:
    place = world.place() / "t"
    shutil.copytree(written, place)
    return place


def _spoil(file: Path, rng: random.Random) -> None:
    data = file.read_bytes()
    how = rng.randrange(7)
    if how == 0:
        data = data[: rng.randrange(len(data) + 1)]
    elif how == 1:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    elif how == 2:
        lines = data.split(b"\n")
        rng.shuffle(lines)
        data = b"\n".join(lines)
    elif how == 3:
        lines = data.split(b"\n")
        lines.insert(
            rng.randrange(len(lines)), rng.choice((lines[0], b"", b"{}", b"null", b"[]", b'{"add":null}', b'{"x":{}}'))
        )
        data = b"\n".join(lines)
    else:
        lines = [line for line in data.split(b"\n") if line]
        number = rng.randrange(len(lines))
        tree = json.loads(lines[number])
        _change(tree, rng)
        lines[number] = _json(tree).encode(errors="surrogatepass")
        data = b"\n".join(lines) + b"\n"
    file.write_bytes(data)


def _change(tree: Any, rng: random.Random) -> None:
    """Gives something in a JSON object another value, or takes it away."""
    while isinstance(tree, dict) and tree:
        key = rng.choice(list(tree))
        below = tree[key]
        if isinstance(below, dict) and below and rng.random() < 0.8:
            tree = below
            continue
        if rng.random() < 0.2:
            del tree[key]
            return
        tree[key] = rng.choice((_plain(value(rng, 1)), rng.choice(TEXTS), _in_text(below, rng)))
        return


def _plain(found: Any) -> Any:
    return found if isinstance(found, str | int | float | list | dict | None) else type(found).__name__


def _json(tree: Any) -> str:
    try:
        return json.dumps(tree, default=lambda other: type(other).__name__, skipkeys=True)
    except (RecursionError, ValueError):
        # Python writes no deeper than its own stack; others do.
        return '{"add":{"path":' + "[" * 20_000 + "]" * 20_000 + "}}"


def _in_text(text: Any, rng: random.Random) -> Any:
    """Something in a text of JSON, as statistics and schemas are."""
    try:
        tree = json.loads(text)
    except (TypeError, ValueError):
        return -1
    if not isinstance(tree, dict):
        return [tree]
    _change(tree, rng)
    return _json(tree)


def _compare(world: World, place: Path) -> None:
    """Imports a table. If delta-rs opens it, too, it has the same files."""
    dataset = world.lake.import_delta(place, f"imported{world.number}").dataset
    assert dataset is not None
    ours = _paths(dataset.snapshot().files().column("path"))
    from deltalake import DeltaTable

    try:
        theirs = DeltaTable(str(place))
        listed = _paths(pa.record_batch(theirs.get_add_actions()).column("path"))
        version = theirs.version()
    except Exception:
        # What it refuses, or what ends one of its threads, it does not tell.
        return
    if version == dataset.version:
        only_ours, only_theirs = sorted(ours - listed)[:3], sorted(listed - ours)[:3]
        assert ours == listed, f"only Lakelog has {only_ours}, only delta-rs {only_theirs}: {place}"


def _paths(column: Any) -> set[str]:
    """Files by the names that they have on a disk: one log spells a path in several ways."""
    return {unquote(path) for path in column.to_pylist()}
