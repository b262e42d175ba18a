"""``attach``: a lake's datasets as temporary views, so that Spark's own SQL finds them."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakelog.catalog.name_key import match_name, name_key, twin_problems
from lakelog.dataset import Dataset
from lakelog.errors import ConfigurationError, ValidationError, Violation
from lakelog.lake import Lake, connect
from lakelog.log.state import Head
from lakelog.spark.errors import spark_door, spark_doors
from lakelog.spark.expressions import quoted
from lakelog.spark.predicates.analysis import is_connect
from lakelog.spark.read.read import read_snapshot, version_of
from lakelog.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_guard = threading.RLock()
_attached: "dict[SparkSession, list[Attached]]" = {}
_connected: dict[str, Lake] = {}
"""By their settings, one for the process: it lives as long as the sessions that name it may."""

CATALOG, ROOT = "lakelog.catalog", "lakelog.root"
"""Settings of a session: the catalog's URL, and where new datasets lie."""


@spark_doors
class Attached:
    """A lake in a Spark session. Every dataset stays at the version that it had when it was attached or refreshed."""

    def __init__(self, spark: "SparkSession", lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        self._loaded: set[str] = set()
        self._heads = _heads_of(lake)

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    @property
    def versions(self) -> dict[str, int]:
        """Of each dataset the version that its view shows."""
        return {name: head.version for name, head in self._heads.items()}

    def refresh(self) -> None:
        """Moves to the datasets as they are now, all at one moment."""
        with _guard:
            before, now = self._heads, _heads_of(self._lake)
            mine = set(map(name_key, self._loaded))
            new = [name for name in now.keys() - before.keys() if name_key(name) not in mine]
            _check_names(self._spark, new, _others(self._spark, self))
            # A name may be another dataset's by now, at the same version.
            moved = {name for name in self._loaded if _shown(now.get(name)) != _shown(before[name])}
            for name in moved:
                self._drop(name)
            self._heads = now
            self.load(None if is_connect(self._spark) else moved & now.keys())

    def detach(self) -> None:
        """Takes the views away."""
        with _guard:
            for name in list(self._loaded):
                self._drop(name)
            lakes = _attached.get(self._spark, [])
            if self in lakes:
                lakes.remove(self)
            if not lakes:
                _attached.pop(self._spark, None)
                _unhook(self._spark)

    def load(self, names: Iterable[str] | None = None) -> None:
        """Makes views now, by default all of them. Otherwise each is made when a query first mentions its dataset.

        A view that somebody else has made under a dataset's name since then stays. Of datasets whose names differ only
        by case, one at a time has a view; of all datasets, they are left out.
        """
        chosen = list(self._heads if names is None else names)
        if problems := twin_problems(chosen):
            if names is not None:
                raise ValidationError("attach", problems)
            twins = {problem.where for problem in problems}
            chosen = [name for name in chosen if repr(name) not in twins]
            log.warning("no views of datasets whose names differ only by case: %s", ", ".join(sorted(twins)))
        missing = [name for name in chosen if name not in self._loaded]
        keys = set(map(name_key, missing))
        for twin in [name for name in self._loaded if name_key(name) in keys and name not in missing]:
            self._drop(twin)
        taken = _temporary_views(self._spark) if missing else set()
        for name in missing:
            if name_key(name) not in taken:
                dataset = self._dataset(name)
                frame = read_snapshot(self._spark, dataset, dataset.snapshot(self._heads[name].version))
                frame.createOrReplaceTempView(quoted(name))
                self._loaded.add(name)

    def _drop(self, name: str) -> None:
        """Unless somebody has put another view in its place."""
        self._loaded.discard(name)
        if name_key(name) in _temporary_views(self._spark):
            frame = type(self._spark).table(self._spark, quoted(name))
            if version_of(frame, self._dataset(name)) == self._heads[name].version:
                self._spark.catalog.dropTempView(name)

    def _dataset(self, name: str) -> Dataset:
        """The one that had the name when it was attached, whatever it is called by now."""
        return Dataset(self._lake, self._heads[name])


def _heads_of(lake: Lake) -> dict[str, Head]:
    return {head.name: head for head in lake.heads()}


def _shown(head: Head | None) -> tuple[int, int] | None:
    """What a view shows."""
    return None if head is None else (head.table_id, head.version)


@spark_door
def attach(spark: "SparkSession", lake: Lake) -> Attached:
    """Lets ``spark.sql`` and ``spark.table`` of this session find a lake's datasets under their names.

    All of them are pinned to the version that they have at this moment; ``refresh()`` of the result moves on. A
    dataset's view is made when a query mentions it for the first time; Spark Connect gets all of them at once.
    """
    with _guard:
        attached = Attached(spark, lake)
        _check_names(spark, attached.versions, _others(spark, attached))
        if is_connect(spark):
            attached.load()
        elif not _attached.get(spark):
            _hook(spark)
        _attached.setdefault(spark, []).append(attached)
    return attached


def lake_of(spark: "SparkSession", lake: Lake | None = None, name: str | None = None) -> Lake:
    """The lake that was given, or is attached to the session, or that the session's setting ``CATALOG`` names.

    Of several that are attached, the one that has a dataset of this name.
    """
    if lake is not None:
        return lake
    with _guard:
        attached = [each._lake for each in _attached.get(spark, []) if not each._lake.closed]
    if len(attached) > 1 and name is not None:
        attached = [each for each in attached if match_name(each.versions(), name)] or attached
    if len(attached) == 1:
        return attached[0]
    if attached:
        raise ConfigurationError(f"several lakes are attached to this session: say which, by lake=…, of {attached}")
    url = spark.conf.get(CATALOG, None)
    if url is None:
        raise ConfigurationError(
            "this session knows no lake: lakelog.spark.attach(spark, lake), or spark.conf.set"
            f"({CATALOG!r}, 'sqlite:///…'), or give the lake by lake=…"
        )
    with _guard:
        known = _connected.get(url)
        if known is None or known.closed:
            known = _connected[url] = connect(url, root=spark.conf.get(ROOT, None))
    return known


def mentioned(names: Iterable[str], text: str) -> list[str]:
    """The names that a text may mean."""
    folded = name_key(text).replace("``", "`")
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name_key(name))}(?!\w)", folded)]


def without_twins(names: Iterable[str], text: str) -> list[str]:
    """These names without those that differ only by case from the one spelling that the text uses throughout."""
    found = list(names)
    used = {name for name in found if not mentioned([name], _spelled(name).sub(" ", text.replace("``", "`")))}
    keys = {name_key(name) for name in used}
    return [name for name in found if name in used or name_key(name) not in keys]


def _spelled(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")


@spark_door
def _load_mentioned(spark: "SparkSession", texts: Iterable[Any]) -> None:
    with _guard:
        text = "\n".join(map(str, texts))
        for lake in _attached.get(spark, []):
            lake.load(without_twins(mentioned(lake.versions, text), text))


def _hook(spark: "SparkSession") -> None:
    """Spark asks nobody for a view that it does not find, so the question is put before its own methods."""
    for method in (spark.sql, spark.table):
        setattr(spark, method.__name__, _after_loading(spark, method))


def _after_loading(spark: "SparkSession", method: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        # Names may come as parameters, too.
        _load_mentioned(spark, (*arguments, *options.values()))
        return method(*arguments, **options)

    return run


def _unhook(spark: "SparkSession") -> None:
    for name in ("sql", "table"):
        vars(spark).pop(name, None)


def _others(spark: "SparkSession", attached: Attached) -> Mapping[str, str]:
    """Datasets of other lakes in the session."""
    return {
        name_key(name): repr(each._lake)
        for each in _attached.get(spark, [])
        if each is not attached
        for name in each.versions
    }


def _temporary_views(spark: "SparkSession") -> set[str]:
    """The keys of their names."""
    return {name_key(table.name) for table in spark.catalog.listTables() if table.isTemporary}


def _check_names(spark: "SparkSession", names: Iterable[str], others: Mapping[str, str]) -> None:
    views = _temporary_views(spark)
    problems = [
        Violation(name, f"is a dataset of {others[name_key(name)]}, too") for name in names if name_key(name) in others
    ]
    problems += [
        Violation(name, "is a temporary view of the session: drop it, or give it another name")
        for name in names
        if name_key(name) in views and name_key(name) not in others
    ]
    if problems:
        raise ValidationError("attach", problems)
