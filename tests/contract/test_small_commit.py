"""Commits that only add a few files: PostgreSQL takes them in one round trip, and nobody sees a difference."""

import threading
import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from lakelog import Dataset, Lake, RowGroup, SqlTxnLogWriter, TransactionManager, VersionConflict
from lakelog.actions import RemoveFile
from lakelog.catalog.base import Catalog
from lakelog.errors import DatasetNotFoundError, LakelogTimeoutError
from tests.contract.samples import add, commit, paths, stats, table
from tests.fixtures.lakes import Place, rows
from tests.invariants import check_invariants

LOG = ("dl_table_versions", "dl_add_files", "row_groups", "partitions", "column_stats")


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    return table(lake, partition_by=["day"])


class Answers:
    """What a catalog said to small commits."""

    def __init__(self, lake: Lake) -> None:
        catalog = lake.committer.catalog
        self._ask = catalog.commit_at_once
        self.found: list[Any] = []
        catalog.commit_at_once = self._answer  # type: ignore[method-assign]

    def _answer(self, *arguments: Any) -> Any:
        self.found.append(self._ask(*arguments))
        return self.found[-1]


def some(*names: str) -> list[Any]:
    return [
        add(name, stats=stats(3, id=(n, n + 5)), partition_values={"day": f"2026-01-0{n + 1}"})
        for n, name in enumerate(names)
    ]


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")], ids=["one file", "three files"])
def test_the_log_has_the_same_rows_either_way(
    lake: Lake, dataset: Dataset, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = table(lake, "others", partition_by=["day"])
    groups = [RowGroup(path=name, row_group=0, row_count=3, stats=stats(3, id=(1, 2))) for name in names]
    for each, method in ((dataset, None), (other, Catalog.commit_at_once)):
        if method is not None:
            monkeypatch.setattr(type(lake.committer.catalog), "commit_at_once", method)
        writer = SqlTxnLogWriter(lake)
        for number in range(2):
            files = some(*(f"{number}{name}" for name in names))
            found = [RowGroup(path=f"{number}{g.path}", row_group=0, row_count=3, stats=g.stats) for g in groups]
            writer.commit(each.id, number + 1, files, operation="COPY", committer="ana", row_groups=found)
            writer.append(each.id, some(*(f"x{number}{name}" for name in names))) if number else None
    own = ("table_id", "committed_at", "commit_id")
    for name in LOG:
        found = [{}, {}]
        for row in rows(lake, name):
            key = repr(sorted((k, v) for k, v in row.items() if k not in own))
            found[row["table_id"] != dataset.id][key] = True
        assert found[0] == found[1] != {}, name
    check_invariants(lake)


@pytest.mark.parametrize("backend", ["postgres"])
class TestOneRoundTrip:
    def test_it_is_taken_for_named_versions_and_for_appends(self, lake: Lake, dataset: Dataset) -> None:
        answers = Answers(lake)
        writer = SqlTxnLogWriter(lake)
        first = writer.commit(dataset.id, 1, some("a"))
        second = writer.append(dataset.id, some("b", "c"))
        assert [(each.version, each.committed_at) for each in answers.found] == [
            (1, first.committed_at),
            (2, second.committed_at),
        ]
        assert first.committed_at < second.committed_at
        check_invariants(lake)

    def test_nothing_is_committed_where_it_does_not_fit(self, lake: Lake, other_lake: Lake, dataset: Dataset) -> None:
        writer, answers = SqlTxnLogWriter(lake), Answers(lake)
        writer.commit(dataset.id, 1, some("a"))
        commit(other_lake, other_lake.dataset("events"), *some("b"))
        with pytest.raises(VersionConflict):
            writer.commit(dataset.id, 2, some("c"))
        # A file that is live is replaced, for which the long way has to be gone.
        assert writer.append(dataset.id, some("a")).version == 3
        other_lake.dataset("events").set_properties({"team": "mine"})
        assert writer.append(dataset.id, some("d")).version == 5
        other_lake.drop_dataset("events")
        with pytest.raises(DatasetNotFoundError):
            writer.append(dataset.id, some("e"))
        stands = [each is not None for each in answers.found]
        assert stands == [True, False, False, False, True, False]
        check_invariants(lake)

    def test_who_loses_races_asks_first_for_a_while(
        self, lake: Lake, other_lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer, catalog = SqlTxnLogWriter(lake), lake.committer.catalog
        commit(lake, dataset, *some("a"))
        commit(other_lake, other_lake.dataset("events"), *some("b"))
        begun: list[Any] = []
        take = catalog._take  # type: ignore[attr-defined]
        monkeypatch.setattr(catalog, "_take", lambda timeout: begun.append(1) or take(timeout))
        for _ in range(2):
            with pytest.raises(VersionConflict):
                writer.commit(dataset.id, 2, some("c"))
            begun.append(0)
        first = begun.index(0)
        assert len(begun) - 1 - first == first, "one connection less than at first"

    def test_a_session_may_forget_what_it_has_prepared(self, lake: Lake, dataset: Dataset) -> None:
        writer, catalog = SqlTxnLogWriter(lake), lake.committer.catalog
        for number in range(3):
            assert writer.append(dataset.id, some(f"{number}")).version == number + 1
            with catalog.session() as session:
                prepared = session.fetch("SELECT 1 FROM pg_prepared_statements WHERE name LIKE 'lakelog_%%'", {})
                assert prepared != [], "what it forgets next"
                session._connection.execute("DEALLOCATE ALL")  # type: ignore[attr-defined]
        check_invariants(lake)

    @pytest.mark.parametrize("same", [True, False], ids=["the same path", "another path"])
    def test_who_waited_for_another_kind_of_commit_sees_what_it_did(
        self, lake: Lake, other_lake: Lake, dataset: Dataset, same: bool
    ) -> None:
        """It waits for the row with a view of the files from before, in which the other's file is not."""
        commit(lake, dataset, *some("old"))
        manager = TransactionManager(other_lake)
        context = manager.begin(dataset.id, base_version=1)
        answers = Answers(lake)
        appending = threading.Thread(
            target=SqlTxnLogWriter(lake).append, args=(dataset.id, some("new" if same else "mine"))
        )
        appending.start()
        _until_somebody_waits(other_lake)
        manager.commit(context, [*some("new"), RemoveFile(path="old")])
        appending.join(30)
        assert not appending.is_alive()
        assert answers.found == [None], "its view was too old"
        assert dataset.version == 3
        assert paths(dataset.snapshot().files()) == (["new"] if same else ["mine", "new"])
        check_invariants(lake)

    def test_times_are_in_order_whosever_clock_is_right(self, lake: Lake, dataset: Dataset) -> None:
        writer = SqlTxnLogWriter(lake)
        writer.append(dataset.id, some("a"))
        ahead = writer.commit(dataset.id, 2, [RemoveFile(path="a")]).committed_at
        assert ahead > dataset.history()[1].timestamp.timestamp() * 1000
        late = writer.append(dataset.id, some("b"))
        assert late.committed_at > ahead
        check_invariants(lake)

    @pytest.mark.parametrize(
        "setting", ["default_transaction_isolation=repeatable\\ read", "default_transaction_read_only=on"]
    )
    def test_a_session_with_habits_of_its_own_makes_no_difference(
        self, place: Place, lake: Lake, dataset: Dataset, setting: str
    ) -> None:
        url = f"{place.url}{'&' if '?' in place.url else '?'}options={quote(f'-c {setting}')}"
        with replace(place, url=url).connect() as other:
            answers = Answers(other)
            assert SqlTxnLogWriter(other).append(dataset.id, some("a")).version == 1
            assert all(answers.found)
        check_invariants(lake)

    @pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
    def test_a_session_with_another_encoding_makes_no_difference(
        self, place: Place, lake: Lake, dataset: Dataset, encoding: str
    ) -> None:
        url = f"{place.url}{'&' if '?' in place.url else '?'}client_encoding={encoding}"
        with replace(place, url=url).connect() as other:
            SqlTxnLogWriter(other).append(dataset.id, some("ä", "€"))
            SqlTxnLogWriter(other).commit(dataset.id, 2, [*some("ö"), RemoveFile(path="€")])
            assert paths(other.dataset("events").snapshot().files()) == ["ä", "ö"]
        assert paths(dataset.snapshot().files()) == ["ä", "ö"]
        check_invariants(lake)

    def test_what_does_not_fit_into_a_buffer_is_not_sent_at_once(self, lake: Lake, dataset: Dataset) -> None:
        """The server would wait for the rest of it, with the locks, if its client freezes."""
        answers = Answers(lake)
        files = [
            add(
                f"{n}", stats=stats(3, id=(n, n), note=("a" * 1000, "b" * 1000)), partition_values={"day": "2026-01-01"}
            )
            for n in range(50)
        ]
        assert SqlTxnLogWriter(lake).append(dataset.id, files).version == 1
        assert answers.found == [None]
        assert SqlTxnLogWriter(lake).append(dataset.id, some("small")).version == 2
        assert answers.found[1] is not None
        check_invariants(lake)

    def test_two_waits_that_take_too_long_together_are_none(self, place: Place, lake: Lake, dataset: Dataset) -> None:
        queries = lake.committer.catalog.queries
        key = {"table_id": dataset.id, "expected": None}
        with psycopg.connect(place.url) as line, psycopg.connect(place.url) as row, place.connect(timeout=1.5) as other:
            line.execute(queries["line_up"], {"table_id": dataset.id})
            row.execute(queries["lock_head"], key)
            first, second = threading.Timer(1.2, line.rollback), threading.Timer(2.4, row.rollback)
            first.start()
            second.start()
            assert SqlTxnLogWriter(other).append(dataset.id, some("a")).version == 1
            row.execute(queries["lock_head"], key)
            with pytest.raises(LakelogTimeoutError, match="a commit lock"):
                SqlTxnLogWriter(other).append(dataset.id, some("b"))
            first.join()
            second.join()
        check_invariants(lake)

    def test_a_lock_that_does_not_come_is_a_timeout(self, place: Place, dataset: Dataset, other_lake: Lake) -> None:
        context = TransactionManager(other_lake).begin(dataset.id)
        with place.connect(timeout=0.3) as lake, pytest.raises(LakelogTimeoutError, match="a commit lock"):
            SqlTxnLogWriter(lake).append(dataset.id, some("a"))
        context.rollback()


def _until_somebody_waits(lake: Lake) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with lake.committer.catalog.session() as session:
            if session.fetch("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'", {}):
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits")
