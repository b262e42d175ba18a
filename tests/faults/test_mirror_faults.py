"""A mirror that is killed anywhere, or whose disk is full: commits stand, and the next mirror finishes the work."""

import errno
import itertools
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakelog import Lake, SqlTxnLogWriter
from lakelog.actions import AddFile
from lakelog.mirror.publisher import Mirror
from lakelog.storage import log_store as storage
from tests.faults.children import Child, die, run
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

NAME = "events"
CALLS = {"open": 3, "write": 3, "utime": 1, "fsync": 3, "close": 3, "link": 2, "unlink": 2}
"""What a local store asks of the operating system, and how often at least for a commit, a checkpoint and the hint."""


def _file(number: int) -> AddFile:
    return AddFile(path=f"{number}.parquet", size=1, stats='{"numRecords":1}')


def _create(place: Place) -> None:
    with place.connect() as lake:
        lake.create_dataset(NAME, pa.schema([("id", pa.int64())]), properties={"delta.checkpointInterval": "1"})


def _commit(lake: Lake) -> int:
    dataset = lake.dataset(NAME)
    version = dataset.version + 1
    return SqlTxnLogWriter(lake).commit(dataset.id, version, [_file(version)]).version


def _recovered(place: Place, version: int) -> None:
    """What was committed is there, and becomes a log that a Delta reader reads."""
    with place.connect() as lake:
        dataset = lake.dataset(NAME)
        assert dataset.version == version
        assert dataset.mirror().published == version
        check_invariants(lake)
        found = DeltaTable(dataset.location)
        assert (found.version(), found.get_add_actions(flatten=True).num_rows) == (version, version)
        left = [file.name for file in (Path(dataset.location) / "_delta_log").iterdir() if file.suffix == ".json"]
        assert len(left) == version + 1


def _kill_between(pipe: Connection, place: Place) -> None:
    lake = place.connect()
    Mirror.told = lambda *_: die()  # type: ignore[method-assign]
    _commit(lake)


def test_a_process_killed_between_its_commit_and_the_mirror(place: Place) -> None:
    _create(place)
    run(_kill_between, place)
    _recovered(place, 1)


def _kill_at(pipe: Connection, place: Place, call: str, number: int, moment: str) -> None:
    """Dies at the n-th time that the store asks something of the operating system."""
    lake = place.connect(mirror="manual")
    _commit(lake)
    seen = itertools.count(1)
    real = getattr(os, call)

    def fatal(*arguments: Any, **options: Any) -> Any:
        last = next(seen) == number
        if last and moment == "before":
            die()
        if last and moment == "half":
            real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            die()
        result = real(*arguments, **options)
        if last:
            die()
        return result

    storage.os = _Os(call, fatal)  # type: ignore[assignment]
    lake.dataset(NAME).mirror()
    pipe.send("survived")


class _Os:
    """The module, with one function replaced."""

    def __init__(self, call: str, replacement: Callable[..., Any]) -> None:
        self._call, self._replacement = call, replacement

    def __getattr__(self, name: str) -> Any:
        return self._replacement if name == self._call else getattr(os, name)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
@pytest.mark.parametrize("call", CALLS)
def test_a_mirror_killed_anywhere_inside_its_writes(place: Place, call: str) -> None:
    """Also inside a checkpoint, and inside of ``_last_checkpoint``."""
    _create(place)
    moments = ("before", "half", "after") if call == "write" else ("before", "after")
    attempts = ((number, moment) for number in itertools.count(1) for moment in moments)
    for version, (number, moment) in enumerate(attempts, 1):
        _, messages = run(_kill_at, place, call, number, moment)
        with place.connect() as lake:
            check_invariants(lake)
        _recovered(place, version)
        if messages == ["survived"]:
            break
    assert number > CALLS[call]


def _without_links(pipe: Connection, place: Place, length: int) -> None:
    """A file system without hard links, on which a file is torn at some length."""
    lake = place.connect(mirror="manual")
    _commit(lake)

    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    writes = itertools.count(1)

    def torn(descriptor: int, data: Any) -> int:
        if next(writes) == 2:
            os.write(descriptor, bytes(data)[:length])
            die()
        return os.write(descriptor, data)

    both = _Os("link", no_links)
    both.write = torn  # type: ignore[attr-defined]
    storage.os = both  # type: ignore[assignment]
    lake.dataset(NAME).mirror()


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("length", [0, 1, 100, 10_000])
def test_a_file_torn_where_there_are_no_links_is_finished(place: Place, length: int) -> None:
    _create(place)
    run(_without_links, place, length)
    _recovered(place, 1)


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
def test_a_full_disk_under_the_log_leaves_the_commit_and_nothing_torn(
    place: Place, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(place)
    with place.connect() as lake:

        def full(*_: Any, **__: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(storage, "os", _Os(call, full))
        assert _commit(lake) == 1
        status = lake.dataset(NAME).mirror_status()
        assert (status.state, status.pending) == ("failing", 1)
        assert "No space left" in (status.error or "")
        log = Path(lake.dataset(NAME).location) / "_delta_log"
        assert [file.name for file in log.glob("*.json")] == [f"{0:020}.json"]
        assert list(log.glob(".*")) == []
        monkeypatch.undo()
        assert lake.dataset(NAME).mirror().state == "published"
    _recovered(place, 1)


def _reconcile(pipe: Connection, place: Place) -> None:
    lake = place.connect(mirror="background")
    pipe.send(lake.dataset(NAME).mirror().state)
    lake.close()


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_two_reconcilers_in_two_processes_publish_each_version_once(place: Place) -> None:
    with place.connect(mirror="manual") as lake:
        lake.create_dataset(NAME, pa.schema([("id", pa.int64())]))
        for _ in range(40):
            _commit(lake)
    with Child(_reconcile, place) as one, Child(_reconcile, place) as other:
        assert [one.receive(), other.receive()] == ["published", "published"]
    _recovered(place, 40)
