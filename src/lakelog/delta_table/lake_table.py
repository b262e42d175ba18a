"""``LakeTable``: a table under the names, arguments and answers of ``delta.tables.DeltaTable``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from lakelog.dataset import Dataset
from lakelog.delta_table.optimize_builder import OptimizeBuilder
from lakelog.delta_table.table_builder import LakeTableBuilder, Mode
from lakelog.delta_table.table_frames import detail_frame, history_frame, merge_frame, restore_frame
from lakelog.errors import DatasetNotFoundError, ValidationError, Violation
from lakelog.lake import Lake
from lakelog.log.snapshot.snapshot import milliseconds_of
from lakelog.spark.dml import verbs
from lakelog.spark.dml.assign import Expression
from lakelog.spark.dml.builder import MergeBuilder
from lakelog.spark.dml.merge import Merge, prepare_merge
from lakelog.spark.errors import spark_doors
from lakelog.spark.frames import aliased, frame_of
from lakelog.spark.identifiers import called, known_name, name_for, path_in
from lakelog.spark.optimize.auto_compact import commit
from lakelog.spark.read.read import read_snapshot
from lakelog.spark.sql.views import lake_of
from lakelog.spark.write.options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_RETRIES = 10
_CHECKS_RETENTION = "spark.databricks.delta.retentionDurationCheck.enabled"
_MERGES_SCHEMAS = "spark.databricks.delta.schema.autoMerge.enabled"


@spark_doors
class LakeTable:
    """A handle on a dataset's head. Each method sees the table as it is when it is called.

    ``lake`` of the methods that find a table is only needed where the session does not tell: it is the one that was
    attached to it (``lakelog.spark.attach``), or that its setting ``lakelog.catalog`` names.
    """

    def __init__(self, spark: "SparkSession", lake: Lake, dataset: Dataset, alias: str | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._dataset = dataset
        self._alias = alias

    def __repr__(self) -> str:
        return f"LakeTable({self._dataset!r})"

    @classmethod
    def forName(cls, sparkSession: "SparkSession", tableOrViewName: str, *, lake: Lake | None = None) -> "LakeTable":
        """The dataset of that name, or of ``delta.`/path` `` the one there. Raises ``DatasetNotFoundError``.

        Expressions may call its columns by that name, too, until ``alias`` gives another one.
        """
        path = path_in(tableOrViewName)
        if path is not None:
            return cls.forPath(sparkSession, path, lake=lake)
        found = lake_of(sparkSession, lake, tableOrViewName)
        dataset = found.dataset(known_name(found, tableOrViewName))
        return cls(sparkSession, found, dataset, called(tableOrViewName))

    @classmethod
    def forPath(
        cls,
        sparkSession: "SparkSession",
        path: str,
        hadoopConf: Mapping[str, str] | None = None,
        *,
        lake: Lake | None = None,
    ) -> "LakeTable":
        """The dataset whose files lie there. ``hadoopConf`` is there for who comes from Delta, and has no use."""
        found = lake_of(sparkSession, lake)
        dataset = found.dataset_at(path)
        if dataset is None:
            raise DatasetNotFoundError(
                f"no dataset of {found!r} lies at {path!r}: if there is a Delta table, or if there are Parquet files, "
                "LakeTable.convertToDelta makes a dataset of them"
            )
        return cls(sparkSession, found, dataset)

    @classmethod
    def isLakeTable(cls, sparkSession: "SparkSession", identifier: str, *, lake: Lake | None = None) -> bool:
        """Whether there is a dataset of that name or at that path."""
        found = lake_of(sparkSession, lake)
        if known_name(found, identifier) in found.versions():
            return True
        path = path_in(identifier)
        return path is not None and found.dataset_at(path) is not None

    @classmethod
    def isDeltaTable(cls, sparkSession: "SparkSession", identifier: str, *, lake: Lake | None = None) -> bool:
        """The same, by Delta's name."""
        return cls.isLakeTable(sparkSession, identifier, lake=lake)

    @classmethod
    def convertToLakelog(
        cls,
        sparkSession: "SparkSession",
        identifier: str,
        partitionSchema: "str | StructType | None" = None,
        *,
        name: str | None = None,
        lake: Lake | None = None,
    ) -> "LakeTable":
        """Makes a dataset of a directory of Parquet files, which ``parquet.`/path` `` names, or of a Delta table, which
        ``delta.`/path` `` does. No file is copied."""
        from lakelog.delta_table.conversion import convert

        found = lake_of(sparkSession, lake)
        return cls(sparkSession, found, convert(found, identifier, partitionSchema, name))

    @classmethod
    def convertToDelta(
        cls,
        sparkSession: "SparkSession",
        identifier: str,
        partitionSchema: "str | StructType | None" = None,
        *,
        name: str | None = None,
        lake: Lake | None = None,
    ) -> "LakeTable":
        """The same, by Delta's name."""
        return cls.convertToLakelog(sparkSession, identifier, partitionSchema, name=name, lake=lake)

    @classmethod
    def create(cls, sparkSession: "SparkSession | None" = None, *, lake: Lake | None = None) -> LakeTableBuilder:
        """A builder that fails if the table exists."""
        return cls._builder(Mode.CREATE, sparkSession, lake)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: "SparkSession | None" = None, *, lake: Lake | None = None
    ) -> LakeTableBuilder:
        """A builder that leaves a table as it is if it exists."""
        return cls._builder(Mode.CREATE_IF_NOT_EXISTS, sparkSession, lake)

    @classmethod
    def replace(cls, sparkSession: "SparkSession | None" = None, *, lake: Lake | None = None) -> LakeTableBuilder:
        """A builder that replaces a table's rows, columns and properties, and fails if it does not exist."""
        return cls._builder(Mode.REPLACE, sparkSession, lake)

    @classmethod
    def createOrReplace(
        cls, sparkSession: "SparkSession | None" = None, *, lake: Lake | None = None
    ) -> LakeTableBuilder:
        """A builder that creates a table, or replaces it if it exists."""
        return cls._builder(Mode.CREATE_OR_REPLACE, sparkSession, lake)

    @classmethod
    def _builder(cls, mode: Mode, spark: "SparkSession | None", lake: Lake | None) -> LakeTableBuilder:
        from lakelog.spark.frames import session_for

        session = session_for(spark)
        return LakeTableBuilder(session, lake_of(session, lake), mode, lambda *table: cls(session, *table))

    @property
    def dataset(self) -> Dataset:
        """The same table, with Lakelog's own verbs."""
        return self._dataset

    def toDF(self) -> "DataFrame":
        """The rows at the head."""
        frame = read_snapshot(self._spark, self._dataset, self._dataset.snapshot())
        return aliased(frame, self._alias)

    def alias(self, aliasName: str) -> "LakeTable":
        """The same table, under another name in expressions."""
        return LakeTable(self._spark, self._lake, self._dataset, aliasName)

    def delete(self, condition: "str | Column | None" = None) -> None:
        """Deletes the rows that match a condition, or all rows."""
        verbs.delete(self._lake, self._dataset, condition, _options(), self._spark, self._alias)

    def update(self, condition: "str | Column | None" = None, set: Mapping[str, Expression] | None = None) -> None:
        """Sets columns of the rows that match a condition, or of all rows."""
        if set is None:
            raise ValidationError("update", [Violation("set", "expected columns and their new values, got None")])
        verbs.update(self._lake, self._dataset, set, condition, _options(), self._spark, self._alias)

    def merge(self, source: "DataFrame", condition: "str | Column") -> "MergeBuilder[DataFrame]":
        """A merge, for clauses to be added. ``execute()`` gives the numbers of rows that were affected."""
        options = _options()
        frame = frame_of(source, self._spark)
        evolves = str(self._spark.conf.get(_MERGES_SCHEMAS, "false")).lower() == "true"

        def run(merge: Merge) -> "DataFrame":
            change = prepare_merge(self._dataset, self._dataset.snapshot(), merge, options, self._spark)
            return merge_frame(self._spark, commit(change, self._lake, _RETRIES, self._spark).metrics)

        merge = Merge(source=frame, condition=condition, clauses=(), alias=self._alias, schema_evolution=evolves)
        return MergeBuilder(merge, run)

    def history(self, limit: int | None = None) -> "DataFrame":
        """The commits, newest first, under Delta's columns."""
        return history_frame(self._spark, self._dataset.history(limit))

    def detail(self) -> "DataFrame":
        """One row about the table, under Delta's columns."""
        return detail_frame(self._spark, self._dataset.detail())

    def vacuum(self, retentionHours: float | None = None) -> "DataFrame":
        """Deletes files that no version needs any more. The answer is empty, as Delta's; ``dataset.vacuum`` reports.

        A retention that is not safe is refused, unless the session says by Delta's setting that it is not looked at.
        """
        from pyspark.sql.types import StructType

        is_checked = str(self._spark.conf.get(_CHECKS_RETENTION, "true")).lower() != "false"
        self._dataset.vacuum(retentionHours, force=not is_checked)
        return self._spark.createDataFrame([], StructType([]))

    def optimize(self) -> OptimizeBuilder:
        """A builder that writes files together, or sorts their rows along a curve."""
        return OptimizeBuilder(self._spark, self._lake, self._dataset, self._alias)

    def restoreToVersion(self, version: int) -> "DataFrame":
        """Makes the table what it was at a version, by a new one."""
        return restore_frame(self._spark, self._dataset.restore(version=version, retries=_RETRIES).metrics)

    def restoreToTimestamp(self, timestamp: str) -> "DataFrame":
        """Makes the table what it was at a time, by a new version. A time without a zone is one of the session's."""
        result = self._dataset.restore(timestamp=self._moment(timestamp), retries=_RETRIES)
        return restore_frame(self._spark, result.metrics)

    def clone(
        self,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> "LakeTable":
        """A dataset of that name, or at that path, that begins as this one is."""
        return self._cloned(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> "LakeTable":
        """A dataset of that name that begins as this one was at a version."""
        return self._cloned(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> "LakeTable":
        """A dataset of that name that begins as this one was at a time. Without a zone, it is one of the session's."""
        return self._cloned(target, isShallow, replace, properties, timestamp=self._moment(timestamp))

    def _moment(self, timestamp: str) -> int:
        """Milliseconds since 1970 of a time that is not after the last commit, which Delta takes for a mistake."""
        try:
            (row,) = self._spark.sql(
                "SELECT unix_millis(CAST(:moment AS TIMESTAMP))", args={"moment": timestamp}
            ).collect()
        except PySparkException as error:
            message = f"expected a time such as '2026-01-31 12:00:00': {error.getMessage() or error}"
            raise ValidationError("timestamp", [Violation(repr(timestamp), message)]) from error
        if row[0] is None:
            message = "expected a time such as '2026-01-31 12:00:00'"
            raise ValidationError("timestamp", [Violation(repr(timestamp), message)])
        last = self._dataset.history(1)[0].timestamp
        if row[0] > milliseconds_of(last):
            message = f"is after the last commit, of {last.isoformat()}: name that version, or no later time"
            raise ValidationError("timestamp", [Violation(repr(timestamp), message)])
        return int(row[0])

    def _cloned(
        self, target: str, shallow: bool, replace: bool, properties: Mapping[str, str] | None, **when: Any
    ) -> "LakeTable":
        path = path_in(target)
        alias = called(target) if path is None else None
        target = known_name(self._lake, target) if path is None else target
        existing = None if path is None else self._lake.dataset_at(path)
        if path is not None:
            target = name_for(self._lake, path) if existing is None else existing.name
        dataset = self._dataset.clone(
            target,
            location=path if existing is None else None,
            shallow=shallow,
            replace=replace,
            properties=properties,
            **when,
        )
        return LakeTable(self._spark, self._lake, dataset, alias)

    def generate(self, mode: str) -> None:
        """Writes lists of the table's files for engines that read ``symlink_format_manifest``, the only mode."""
        self._dataset.generate(mode)

    def addFeatureSupport(self, featureName: str) -> None:
        """Lists a feature in the protocol, with what it needs."""
        self._dataset.add_feature(featureName)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raises the protocol. Never lowers it."""
        self._dataset.upgrade_protocol(readerVersion, writerVersion)


def _options() -> WriteOptions:
    return verbs.options(_RETRIES, None, None)
