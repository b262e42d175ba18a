"""Once a commit stands, its caller gets an answer, whatever becomes of the database and of what watches commits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakelog import DatabaseError, Lake, LakelogError, read_dataset, write_dataset
from tests.fixtures.lakes import rows
from tests.invariants import check_invariants


def _two_tables(spark: SparkSession, lake: Lake) -> None:
    with lake.transaction(spark=spark) as transaction:
        transaction.write("events", spark.range(3))
        transaction.delete("other", "id = 1")


SMALL = {"delta.autoOptimize.autoCompact": "true"}

Door = Callable[[SparkSession, Lake], object]
DOORS: dict[str, Door] = {
    "create": lambda spark, lake: write_dataset(lake, "new", spark.range(3), properties=SMALL),
    "append": lambda spark, lake: write_dataset(lake, "events", spark.range(3)),
    "overwrite": lambda spark, lake: write_dataset(lake, "events", spark.range(3), "overwrite"),
    "delete": lambda spark, lake: lake.dataset("events").delete("id = 1", spark=spark),
    "update": lambda spark, lake: lake.dataset("events").update({"id": "id + 100"}, "id = 1", spark=spark),
    "merge": lambda spark, lake: (
        lake.dataset("events").merge(spark.range(2).alias("s"), "t.id = s.id", alias="t").whenMatchedDelete().execute()
    ),
    "optimize": lambda spark, lake: lake.dataset("events").optimize(spark=spark),
    "restore": lambda spark, lake: lake.dataset("events").restore(0),
    "shallow clone": lambda spark, lake: lake.clone("events", "copy"),
    "deep clone": lambda spark, lake: lake.clone("events", "copy", shallow=False),
    "clone over another": lambda spark, lake: lake.clone("events", "other", replace=True),
    "transaction": _two_tables,
}


@pytest.fixture
def filled(spark: SparkSession, local: Lake) -> Lake:
    for name in ("events", "other"):
        write_dataset(local, name, spark.range(3).coalesce(1), properties=SMALL)
        write_dataset(local, name, spark.range(3, 5).coalesce(1))
    return local


@contextmanager
def lost_after_commit(lake: Lake) -> Iterator[list[str]]:
    """The database answers a COMMIT, and nothing more. Gives the questions that came too late."""
    catalog = lake.committer.catalog
    late: list[str] = []
    with pytest.MonkeyPatch.context() as patched:

        def finish(*arguments: Any) -> Any:
            done = finished(*arguments)

            @contextmanager
            def session() -> Iterator[Any]:
                late.append("session")
                raise DatabaseError("the database is gone")
                yield

            def begin(*_: Any, **__: Any) -> Any:
                late.append("begin")
                raise DatabaseError("the database is gone")

            patched.setattr(catalog, "session", session)
            patched.setattr(catalog, "begin", begin)
            patched.setattr(catalog, "note", begin)
            return done

        finished = lake.committer.finish
        patched.setattr(lake.committer, "finish", finish)
        yield late


@pytest.mark.parametrize("door", DOORS)
def test_every_door_answers_when_the_database_is_lost_after_its_commit(
    spark: SparkSession, filled: Lake, door: str
) -> None:
    before = filled.versions()
    with lost_after_commit(filled):
        DOORS[door](spark, filled)
    assert filled.versions() != before
    for dataset in filled.datasets():
        dataset.mirror()
        read_dataset(filled, dataset.name).collect()
        assert filled.check(dataset.name).findings == ()
    check_invariants(filled)


@pytest.mark.parametrize("error", [LakelogError("late"), KeyboardInterrupt()], ids=["ours", "interrupt"])
@pytest.mark.parametrize("door", [door for door in DOORS if "clone" not in door])
def test_an_error_after_the_commit_deletes_no_committed_file(
    spark: SparkSession, filled: Lake, door: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(drafts: Any) -> None:
        raise error

    before = filled.versions()
    with monkeypatch.context() as late:
        late.setattr(filled.committer, "tell", told)
        with pytest.raises(type(error)):
            DOORS[door](spark, filled)
    assert filled.versions() != before
    for dataset in filled.datasets():
        read_dataset(filled, dataset.name).collect()
        assert filled.check(dataset.name).findings == ()
    assert rows(filled, "dl_writes") == []
