"""Files that somebody put into ``_delta_log`` to break who reads them: commits go on, the mirror says what it found."""

import errno
import json
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import lakelog.storage.log_store
from lakelog import Dataset, DeltaLogError, Lake, LakelogError
from lakelog.actions import DomainMetadata
from tests.contract.mirror_files import file_of, foreign, log_of, versions
from tests.contract.samples import SCHEMA, add, commit, table
from tests.invariants import check_invariants

DEEP = 50_000
NESTED = b"[" * DEEP + b"]" * DEEP


@pytest.fixture
def events(lake: Lake) -> Dataset:
    return table(lake)


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """What a piece of work gives, which must not wait for ever."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((work(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it waits for ever"
    result, error = found[0]
    if error is not None:
        raise error
    return result


def _nested(file: Path) -> None:
    file.write_bytes(b'{"commitInfo":{"engineInfo":' + NESTED + b"}}\n")


def _wide(file: Path) -> None:
    with file.open("wb") as target:
        target.write(foreign(1))
        target.truncate(1 << 40)


def _to_zeros(file: Path) -> None:
    file.symlink_to("/dev/zero")


def _to_nowhere(file: Path) -> None:
    file.symlink_to(file.with_name("nowhere"))


def _to_itself(file: Path) -> None:
    file.symlink_to(file)


@pytest.mark.parametrize("put", [_nested, _wide, os.mkfifo, Path.mkdir, _to_zeros, _to_nowhere, _to_itself])
def test_whatever_stands_where_the_next_commit_belongs_stops_only_the_mirror(
    lake: Lake, events: Dataset, put: Callable[[Path], None]
) -> None:
    put(file_of(events, 1))
    assert _within(60, lambda: commit(lake, events, add("a.parquet"))).version == 1
    assert _within(60, lambda: commit(lake, events, add("b.parquet"))).version == 2
    status = _within(60, events.mirror_status)
    assert (status.state, status.pending) == ("stopped", 2)
    assert file_of(events, 1).name in (status.error or "")
    assert _within(60, lambda: lake.check("events")).findings, "the check is content with it"
    with pytest.raises(LakelogError, match="nothing was deleted"):
        _within(60, lambda: events.vacuum(0, force=True))
    with pytest.raises(LakelogError, match="nothing was forgotten"):
        _within(60, lambda: events.expire_versions(keep_last=1))
    with pytest.raises(LakelogError, match="contradicts"):
        _within(60, events.adopt)
    assert _within(60, lambda: events.mirror(set_aside=True)).state == "published"
    assert versions(events) == [0, 1, 2]
    check_invariants(lake)


def test_a_nested_commit_ahead_of_the_catalog_is_not_adopted(lake: Lake, events: Dataset) -> None:
    _nested(file_of(events, 1))
    assert events.mirror_status().state == "stopped"
    with pytest.raises(DeltaLogError, match="nested too deeply"):
        events.adopt()
    assert events.version == 0


@pytest.mark.parametrize("member", ["engineInfo", "operation"])
def test_what_a_foreign_file_says_of_itself_is_shown_only_if_it_is_a_short_text(
    lake: Lake, events: Dataset, member: str
) -> None:
    for odd in ({"a": [1] * 10}, "x" * 100_000):
        file_of(events, 1).write_text(json.dumps({"commitInfo": {member: odd}}))
        status = events.mirror()
        assert status.state == "stopped"
        assert len(status.error or "") < 1_000
        assert "[1, 1" not in (status.error or "")


class TestHint:
    """``_last_checkpoint`` that cannot be understood is none."""

    HINTS = (
        b"null",
        b"{}",
        b'{"version":null}',
        b'{"version":true}',
        b'{"version":-1}',
        b'{"version":1e2}',
        b'{"version":' + b"9" * 30 + b"}",
        b'{"version":12345678901234567890}',
        b'{"version":1,"sizeInBytes":null}',
        b'{"version":1,"sizeInBytes":[[]]}',
        b'{"version":1,"sizeInBytes":' + b"9" * 30 + b"}",
        b'{"version":1,"version":2}',
        b"\xff\xfe",
        NESTED,
    )

    @pytest.mark.parametrize("said", HINTS, ids=lambda said: said[:36].decode(errors="replace"))
    def test_checkpoints_are_made_whatever_the_hint_says(self, lake: Lake, said: bytes) -> None:
        events = table(lake, properties={"delta.checkpointInterval": "1"})
        commit(lake, events, add("a.parquet"))
        events.mirror()
        hint = log_of(events) / "_last_checkpoint"
        hint.write_bytes(said)
        commit(lake, events, add("b.parquet"))
        events.mirror()
        assert json.loads(hint.read_bytes())["version"] == 2
        assert (log_of(events) / f"{2:020}.checkpoint.parquet").exists()
        check_invariants(lake)

    @pytest.mark.parametrize("put", [os.mkfifo, _to_zeros, _to_nowhere])
    def test_a_hint_that_is_no_file_is_none(self, lake: Lake, put: Callable[[Path], None]) -> None:
        events = table(lake, properties={"delta.checkpointInterval": "1"})
        hint = log_of(events) / "_last_checkpoint"
        hint.unlink(missing_ok=True)
        put(hint)
        assert _within(60, lambda: commit(lake, events, add("a.parquet"))).version == 1
        assert _within(60, events.mirror).state == "published"
        assert json.loads(hint.read_bytes())["version"] == 1

    def test_a_check_finds_a_hint_that_is_no_file(self, lake: Lake) -> None:
        events = table(lake, properties={"delta.checkpointInterval": "1"})
        commit(lake, events, add("a.parquet"))
        events.mirror()
        hint = log_of(events) / "_last_checkpoint"
        hint.unlink()
        os.mkfifo(hint)
        findings = _within(60, lambda: lake.check("events", deep=False)).findings
        assert [each for each in findings if "_last_checkpoint" in str(each)]


def test_a_checkpoint_that_is_no_file_is_not_waited_for(lake: Lake) -> None:
    events = table(lake, properties={"delta.checkpointInterval": "1"})
    os.mkfifo(log_of(events) / f"{1:020}.checkpoint.parquet")
    commit(lake, events, add("a.parquet"))
    assert _within(60, events.mirror).state == "published"
    commit(lake, events, add("b.parquet"))
    assert _within(60, events.mirror).state == "published"
    assert (log_of(events) / f"{2:020}.checkpoint.parquet").is_file()


def test_a_commit_of_ours_may_be_larger_than_what_is_read_of_others(
    lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakelog.mirror.publisher, "MAX_FILE_BYTES", 10)
    commit(lake, events, add("a.parquet"))
    content = file_of(events, 1).read_bytes()
    file_of(events, 1).write_bytes(content[:50])
    entry = lake.mirror.entry(events.id)
    lake.mirror._set(lake.mirror._places[events.id], entry, entry.next(0))
    assert events.mirror().published == 1
    assert file_of(events, 1).read_bytes() == content


@pytest.mark.parametrize("claimed", [10**12, 2**63 - 1, 10**20 - 1])
def test_a_name_that_claims_a_version_beyond_all_is_no_reason_to_count_there(
    lake: Lake, events: Dataset, tmp_path: Path, claimed: int
) -> None:
    (log_of(events) / f"{claimed:020}.checkpoint.parquet").write_bytes(b"x")
    if claimed < 2**63 - 1:
        with pytest.raises(DeltaLogError, match="lacks version 1"):
            _within(30, events.adopt)
    else:
        assert _within(30, events.adopt) == 0
    alone = tmp_path / "alone" / "_delta_log"
    alone.mkdir(parents=True)
    (alone / f"{claimed:020}.checkpoint.parquet").write_bytes(b"x")
    with pytest.raises(LakelogError):
        _within(30, lambda: lake.import_delta(alone.parent, "alone"))


def test_a_file_that_vanishes_meanwhile_hides_no_other(events: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files come and go with every publication."""
    log = log_of(events)
    for number in range(50):
        (log / f".{number}.tmp").touch()
    scan = os.scandir

    class Vanishing:
        """Lists a directory whose temporary files are gone when they are looked at."""

        def __init__(self, directory: Path) -> None:
            with scan(directory) as entries:
                self._entries = list(entries)
            for entry in self._entries:
                if entry.name.endswith(".tmp"):
                    os.unlink(entry.path)  # noqa: PTH108

        def __enter__(self) -> Any:
            return iter(sorted(self._entries, key=lambda entry: entry.name))

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Vanishing)
    names = [each.name for each in lakelog.storage.log_store.LocalStore(log).files()]
    assert names == ["00000000000000000000.json"]


def test_a_file_that_cannot_be_looked_at_is_not_passed_over(events: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose newest commit is on a bad sector is not the log that ends before it."""

    class Failing:
        name = "00000000000000000001.json"

        def is_file(self) -> bool:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = lakelog.storage.log_store.LocalStore(log_of(events))
    monkeypatch.setattr(os, "scandir", lambda _: nullcontext(iter([Failing()])))
    with pytest.raises(OSError, match="Input/output error"):
        store.files()


def test_a_link_that_leads_to_itself_keeps_no_checkpoint_from_being_written(lake: Lake) -> None:
    events = table(lake, properties={"delta.checkpointInterval": "2"})
    loop = log_of(events) / "loop"
    loop.symlink_to(loop)
    for number in range(5):
        commit(lake, events, add(f"{number}.parquet"))
    assert events.mirror().state == "published"
    assert list(log_of(events).glob("*.checkpoint.parquet"))


@pytest.mark.parametrize("said", ["x", [1], None, {"numOutputRows": "9" * 5000}])
def test_a_foreign_clustering_of_another_form_is_none(lake: Lake, said: object) -> None:
    events = table(lake, schema=SCHEMA, mirror=False)
    for text in (json.dumps(said), json.dumps({"clusteringColumns": said}), "{", '{"clusteringColumns": [[], [1.5]]}'):
        domain = DomainMetadata(domain="delta.clustering", configuration=text)
        commit(lake, events, domain)
        assert events.detail().clustering_columns == ()
        events.replace(SCHEMA.remove(0))
        events.replace(SCHEMA)
