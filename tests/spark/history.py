"""A history of tables that are changed in every way, with a plain list of the rows that each version must have."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from lakelog import Lake, LakelogError, read_dataset
from tests.model.rows import State, Table, a_condition
from tests.spark.changes import PARTITION, Change, Changes


@dataclass(slots=True)
class History:
    """Changes tables on a lake and in a model, and compares them after every step."""

    spark: SparkSession
    lake: Lake
    other: Lake
    """Another application on the same catalog."""
    random: Random
    changes: Changes
    tables: dict[str, Table] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def now(self, name: str) -> State:
        return self.tables[name].now

    def do(self, name: str, change: Change) -> None:
        self.tell(name, change.told)
        before = self.now(name)
        change.run(self.lake, name)
        self.stands(name, change.becomes(before))

    def tell(self, name: str, what: str) -> None:
        short = what.replace("x" * 999, "xxx…")
        self.told.append(f"{name} at {max(self.tables[name].versions, default=None)}: {short}")

    def stands(self, name: str, state: State) -> None:
        """The table's head has these rows: it is so, however they are read."""
        self.tables[name].versions[self.lake.dataset(name).version] = state
        self.compare(name)
        self.random.choice([self.compare_older, self.compare_some, self.compare_count])(name)

    def compare_older(self, name: str) -> None:
        self.compare(name, self.random.choice(list(self.tables[name].versions)))

    def compare_some(self, name: str) -> None:
        state = self.now(name)
        condition = a_condition(self.random, state, state.names, of_partition=PARTITION)
        found = read_dataset(self.lake, name, where=condition.sql, spark=self.spark).toArrow()
        assert_same(state.of(found), state.matching(condition), f"{name} where {condition.sql}")

    def compare_count(self, name: str) -> None:
        condition = a_condition(self.random, self.now(name), self.now(name).names, of_partition=PARTITION)
        found = self.lake.dataset(name).count(condition.sql, spark=self.spark)
        assert found == len(self.now(name).matching(condition).rows), f"{name} where {condition.sql}"

    def compare(self, name: str, version: int | None = None, lake: Lake | None = None, at: str | None = None) -> None:
        """``at`` is what the history calls it, if it has another name for the moment."""
        expected = self.now(at or name) if version is None else self.tables[at or name].versions[version]
        found = read_dataset(lake or self.lake, name, version, spark=self.spark)
        assert found.columns == expected.names
        assert_same(expected.of(found.toArrow()), expected, f"{name} at {version}")

    def compare_all(self) -> None:
        for name in self.tables:
            self.compare(name)

    # What changes no row

    def keep(self, name: str, told: str, run: Callable[[Lake, str], Any]) -> None:
        self.do(name, Change(told, run, lambda now: now))

    def optimize(self, name: str) -> None:
        self.keep(name, "optimize", lambda lake, name: lake.dataset(name).optimize(spark=self.spark))

    def zorder(self, name: str) -> None:
        # No type without an order.
        by = [next(each.name for each in self.now(name).columns[2:] if each.kind.partitions), "id"]
        self.keep(name, "zorder", lambda lake, name: lake.dataset(name).optimize(zorder_by=by, spark=self.spark))

    def expire(self, name: str) -> None:
        table, left = self.tables[name], self.random.randint(1, 3)
        oldest = max(table.versions) - left + 1
        table.versions = {version: state for version, state in table.versions.items() if version >= oldest}
        self.keep(name, f"keep {left}", lambda lake, name: lake.dataset(name).expire_versions(keep_last=left))

    def vacuum(self, name: str) -> None:
        self.tables[name].forget()
        self.keep(name, "vacuum", lambda lake, name: lake.dataset(name).vacuum(0, force=True))
        self.compare_all()

    # What takes rows from other versions and tables

    def restore(self, name: str, version: int | None = None) -> None:
        chosen = self.random.choice(list(self.tables[name].versions)) if version is None else version
        old = self.tables[name].versions[chosen]
        self.do(
            name, Change(f"restore {chosen}", lambda lake, name: lake.dataset(name).restore(chosen), lambda now: old)
        )

    def clone(self, name: str, clone: str) -> None:
        """As it is or was, over what may be there."""
        version = self.random.choice(list(self.tables[name].versions))
        shallow = self.random.random() < 0.7
        self.tell(name, f"{clone} becomes a {'shallow' if shallow else 'deep'} clone of {version}")
        replaces = clone in self.tables
        self.lake.clone(name, clone, version, replace=replaces, shallow=shallow)
        self.tables.setdefault(clone, Table())
        self.stands(clone, self.tables[name].versions[version])

    # What meets another application

    def meet(self, name: str) -> None:
        """Another application commits after this one has written its files, before it commits."""
        ours, theirs = (self.changes.any(self.now(name)) for _ in range(2))
        self.tell(name, f"{ours.told}, and meanwhile {theirs.told}")
        before = self.now(name)
        outcomes = [theirs.becomes(before)]
        meeting = Meeting(self.lake.committer.watcher, lambda: theirs.run(self.other, name))
        self.lake.committer.watcher = meeting
        try:
            ours.run(self.lake, name)
        except LakelogError as refused:
            self.told.append(f"refused: {refused}")
            assert not ours.reads_nothing, "what reads nothing is in nobody's way"
        else:
            outcomes = [ours.becomes(theirs.becomes(before)), theirs.becomes(ours.becomes(before))]
        finally:
            self.lake.committer.watcher = meeting.watcher
        if not meeting.over:
            # It had nothing to commit.
            outcomes = [ours.becomes(before)]
        found = before.of(read_dataset(self.lake, name, spark=self.spark).toArrow())
        matching = [outcome for outcome in outcomes if outcome.counted() == found.counted()]
        if not matching:
            assert_same(found, outcomes[0], name)
        self.stands(name, matching[0])

    def vacuumed_while_written(self, name: str, vacuum: Callable[[Lake, str], Any]) -> None:
        """Files are written; a vacuum whose clock is wrong runs; they are committed, or that is refused."""
        rows = self.changes.rows(self.now(name), 3)
        self.tell(name, f"append {rows}, and meanwhile a vacuum")
        after = self.now(name)
        with suppress(LakelogError), self.lake.transaction(spark=self.spark) as transaction:
            transaction.write(name, self.changes.frame(after, rows))
            with suppress(LakelogError):
                vacuum(self.other, name)
                self.tables[name].forget()
        if transaction.results:
            after = after.append(rows)
        self.stands(name, after)


@dataclass(slots=True)
class Meeting:
    """Lets somebody else go first, once."""

    watcher: Any
    act: Callable[[], Any]
    over: bool = False

    def check(self, table_id: int, expected: int | None) -> None:
        if not self.over:
            self.over = True
            self.act()
        self.watcher.check(table_id, expected)

    def told(self, committed: Any) -> None:
        self.watcher.told(committed)


def assert_same(found: State, expected: State, what: str) -> None:
    """The rows, and else which of them are too few and too many."""
    lost, surplus = expected.counted() - found.counted(), found.counted() - expected.counted()
    assert not lost + surplus, f"{what}\nlost: {list(lost.elements())}\nsurplus: {list(surplus.elements())}"
