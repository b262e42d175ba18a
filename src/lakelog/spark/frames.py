"""Whatever holds rows as a Spark DataFrame, and the session that it belongs to."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.schema.evolution.convert import apply
from lakelog.schema.evolution.projection import project
from lakelog.schema.leaves import leaf_columns
from lakelog.schema.mapping import nullable
from lakelog.schema.normalize import normalize
from lakelog.schema.spark import to_spark
from lakelog.spark.identifiers import Called

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_guard = threading.Lock()
_changed: "dict[tuple[SparkSession, str], tuple[int, str | None]]" = {}
"""Settings that are changed for a while: by how many, and what they were before."""


def frame_of(data: Any, spark: "SparkSession | None" = None) -> "DataFrame":
    """A Spark DataFrame as it is; a pyarrow Table or pandas DataFrame carried into Spark."""
    if hasattr(data, "sparkSession") and hasattr(data, "observe"):
        return data  # type: ignore[no-any-return]
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif not isinstance(data, pa.Table) and hasattr(data, "iloc"):
        data = pa.Table.from_pandas(data, preserve_index=False)
    if not isinstance(data, pa.Table):
        message = f"expected a Spark or pandas DataFrame or a pyarrow Table, got {type(data).__name__}"
        raise ValidationError("write", [Violation("data", message)])
    # Spark's way in does not know NOT NULL inside of something that is null.
    target = [nullable(field).with_nullable(field.nullable) for field in normalize(data.schema)]
    rows = apply(project(list(data.schema), target), data)
    if rows.num_columns and rows.num_rows:
        # Spark's reader of Arrow takes a batch without rows for the end, and those after it would be lost.
        rows = pa.Table.from_batches([batch for batch in rows.to_batches() if batch.num_rows], rows.schema)
    # Without the schema it would take local times for instants.
    return session_for(spark).createDataFrame(rows, to_spark(rows.schema))


def session_for(spark: "SparkSession | None") -> "SparkSession":
    """The session that was given, or is active, or a new one."""
    if spark is not None:
        return spark
    from pyspark.sql import SparkSession

    from lakelog.spark.session import session

    return SparkSession.getActiveSession() or session()


def aliased(frame: "DataFrame", alias: str | None) -> "DataFrame":
    """A frame whose columns may be called by a name of it, too, if it has one."""
    if not alias:
        return frame
    if not isinstance(alias, Called) or type(frame).__module__.startswith("pyspark.sql.connect"):
        return frame.alias(alias)
    # PySpark has no way to say which database a name belongs to.
    from pyspark.sql.classic.dataframe import DataFrame

    spark: Any = frame.sparkSession
    packages = spark._jvm.org.apache.spark
    database = packages.api.python.PythonUtils.toSeq(list(alias.database))
    name = packages.sql.catalyst.AliasIdentifier(str(alias), database)
    plan = packages.sql.catalyst.plans.logical.SubqueryAlias(name, frame._jdf.queryExecution().analyzed())
    return DataFrame(packages.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def exact_days(spark: "SparkSession", schema: pa.Schema) -> AbstractContextManager[None]:
    """For queries of a table that may compare days: Spark pushes them into Parquet by a calendar that lacks ten days
    of 1582. A session stays as it is where the table has no days."""
    if not any(pa.types.is_date(leaf.type) for leaf in leaf_columns(schema)):
        return nullcontext()
    return setting(spark, "spark.sql.datetime.java8API.enabled", "true")


@contextmanager
def setting(spark: "SparkSession", name: str, value: str) -> Iterator[None]:
    """Gives one of the session's settings another value for a while. Of several threads, the last one restores it."""
    key = (spark, name)
    with _guard:
        users, before = _changed.get(key, (0, None))
        _changed[key] = (users + 1, before if users else spark.conf.get(name, None))
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with _guard:
            users, before = _changed.pop(key)
            if users > 1:
                _changed[key] = (users - 1, before)
            elif before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before)
