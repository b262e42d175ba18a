"""``lake.sql``: a query over datasets, which reads only the files that its own conditions need.

The query is analysed over empty stand-ins first. Spark's own rules push its conditions down to them, where they are
read as those of ``read_dataset`` are, and the query is analysed again over the files that are left.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.catalog.name_key import twin_problems
from lakelog.errors import ValidationError, Violation
from lakelog.log.pruning.predicate import Everything, Predicate, disjunction
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.schema.mapping import readable
from lakelog.schema.spark import to_spark
from lakelog.spark.errors import refusing, spark_door
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import session_for
from lakelog.spark.predicates.analysis import filter_predicate, is_connect
from lakelog.spark.read.manifest import MANIFEST
from lakelog.spark.read.read import read_pruned
from lakelog.spark.sql.views import mentioned, without_twins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUNDS = 3
"""How often conditions are pushed down: what one round infers from a join, the next one pushes on."""


@spark_door
def sql(lake: Engine, query: str, spark: "SparkSession | None" = None) -> "DataFrame":
    """The rows of a query. Each dataset is read at its head, all of them at one moment."""
    session = session_for(spark)
    if is_connect(session):
        message = "Spark Connect keeps its plans to itself: use lakelog.spark.attach, or read_dataset with where"
        raise ValidationError("sql", [Violation("spark", message)])
    heads = {head.name: head for head in lake.heads()}
    names = without_twins(mentioned(heads, query), query)
    if problems := twin_problems(names):
        raise ValidationError("sql", problems)
    datasets = {name: lake.handle(heads[name]) for name in names}
    snapshots = {name: (each, each.snapshot(heads[name].version)) for name, each in datasets.items()}
    with tempfile.TemporaryDirectory(prefix="lakelog-sql-") as home, refusing("sql", "query"):
        aside = _Aside(session, query)
        predicates = _Reads(session, aside, snapshots, Path(home)).of(query)
        frames = {
            name: read_pruned(session, *snapshots[name], disjunction(found)) for name, found in predicates.items()
        }
        return aside.rows(frames)


class _Reads:
    """Which rows of which datasets a query reads."""

    def __init__(
        self,
        spark: "SparkSession",
        aside: "_Aside",
        snapshots: Mapping[str, tuple[Table, Snapshot]],
        home: Path,
    ) -> None:
        self._spark = spark
        self._aside = aside
        self._schemas = {name: pa.schema(map(readable, each.schema)) for name, (_, each) in snapshots.items()}
        self._home = home
        jvm: Any = spark._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        optimizer = catalyst.optimizer
        self._once = (catalyst.analysis.EliminateView, optimizer.InlineCTE(True, False, False))
        self._again = (
            catalyst.analysis.EliminateSubqueryAliases,
            optimizer.PushDownPredicates,
            optimizer.EliminateOuterJoin,
            optimizer.InferFiltersFromConstraints,
        )
        self._found: dict[str, list[Predicate]] = {}
        self._names: dict[str, str] = {}

    def of(self, query: str) -> dict[str, list[Predicate]]:
        """Of each dataset that is read, what is asked of its rows, once for each place where it stands."""
        plan = self._aside.analysed({name: self._stand_in(name) for name in self._schemas})
        if self._is_command(plan):
            message = "is not a query: use spark.sql, with lakelog.spark.attach for what it reads"
            raise ValidationError("sql", [Violation(query[:80], message)])
        self._collect(self._pushed(plan))
        return self._found

    def _stand_in(self, name: str) -> "DataFrame":
        """A table without files, which Spark takes for any other."""
        directory = self._home / str(len(self._names))
        (directory / MANIFEST).mkdir(parents=True)
        (directory / MANIFEST / "0").write_text("v1")
        self._names[directory.name] = name
        reader = self._spark.read.schema(to_spark(self._schemas[name])).option("recursiveFileLookup", "true")
        return reader.parquet(str(directory))

    def _is_command(self, plan: Any) -> bool:
        jvm: Any = self._spark._jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return bool(loader.loadClass("org.apache.spark.sql.catalyst.plans.logical.Command").isInstance(plan))

    def _pushed(self, plan: Any) -> Any:
        for rule in (*self._once, *self._again * _ROUNDS):
            plan = rule.apply(plan)
        return plan

    def _collect(self, plan: Any, condition: Any = None) -> None:
        """Walks down to the stand-ins. ``condition`` is the filter right above the plan, if there is one."""
        kind = plan.getClass().getSimpleName()
        if kind == "LogicalRelation":
            self._add(plan, condition)
        subqueries = plan.subqueries()
        for index in range(subqueries.size()):
            self._collect(self._pushed(subqueries.apply(index)))
        children = plan.children()
        for index in range(children.size()):
            self._collect(children.apply(index), plan if kind == "Filter" else None)

    def _add(self, relation: Any, condition: Any) -> None:
        name = self._name_of(relation)
        if name is not None:
            predicate: Predicate = Everything()
            if condition is not None:
                predicate = filter_predicate(self._spark, self._schemas[name], condition)
            self._found.setdefault(name, []).append(predicate)

    def _name_of(self, relation: Any) -> str | None:
        """The dataset that a stand-in is for; None for a table that is not one of ours."""
        source = relation.relation()
        if source.getClass().getSimpleName() != "HadoopFsRelation":
            return None
        roots = source.location().rootPaths()
        place = Path(str(roots.apply(0).toUri().getPath())) if roots.size() == 1 else None
        return self._names.get(place.name) if place is not None and place.parent == self._home else None


class _Aside:
    """A copy of the session, with its settings and views, in which names mean something else for a while.

    In the session itself another thread might find them.
    """

    def __init__(self, spark: "SparkSession", query: str) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        session: Any = spark._jsparkSession
        self._session = session.cloneSession()
        # Once, since it is the parser that says which day DATE 'today' is.
        self._query = self._session.sessionState().sqlParser().parsePlan(query)

    def analysed(self, views: "Mapping[str, DataFrame]") -> Any:
        """The plan of the query over these views. Nothing is executed, also if it is a command."""
        for name, frame in views.items():
            self._rows(self._session, frame._jdf.queryExecution().analyzed()).createOrReplaceTempView(quoted(name))
        state = self._session.sessionState()
        mode = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        return state.executePlan(self._query.clone(), mode).analyzed()

    def rows(self, views: "Mapping[str, DataFrame]") -> "DataFrame":
        """The rows of the query over these views, in the session itself."""
        from pyspark.sql.classic.dataframe import DataFrame

        session: Any = self._spark._jsparkSession
        return DataFrame(self._rows(session, self.analysed(views)), self._spark)

    def _rows(self, session: Any, plan: Any) -> Any:
        return self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
