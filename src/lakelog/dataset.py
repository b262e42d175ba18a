"""``Dataset``: one table, at whatever version it is when asked."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakelog.arguments import FLAG, INTEGER, NAMES, TEXT, takes
from lakelog.changes.evolution import SchemaVersion
from lakelog.changes.new_table import definition
from lakelog.changes.redefine import replace_table
from lakelog.changes.restore import RestoreResult, restore
from lakelog.definition import Definition
from lakelog.detail import DatasetDetail, detail_of
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.draft import Description
from lakelog.log.commit.outcomes import CommitResult
from lakelog.log.snapshot.scan import Scan
from lakelog.log.snapshot.snapshot import Snapshot, milliseconds_of, moment
from lakelog.log.state import TableMetadata
from lakelog.sessions import in_session

if TYPE_CHECKING:
    from lakelog.lake import Lake
    from lakelog.log.state import Head
    from lakelog.mirror.status import MirrorStatus
    from lakelog.spark.dml.builder import MergeBuilder
    from lakelog.spark.dml.rewrite import ChangeResult
    from lakelog.spark.optimize.compaction import OptimizeResult
    from lakelog.upkeep.expiry import ExpiryReport
    from lakelog.upkeep.vacuum import VacuumReport


class Dataset(Definition):
    """A handle on a table. It stays valid when the table is renamed."""

    def __init__(self, lake: "Lake", head: "Head") -> None:
        super().__init__(lake.committer, head)
        self._lake = lake

    def detail(self) -> DatasetDetail:
        """What there is to say about the table at its head: its size, properties and protocol among it."""
        return detail_of(self.snapshot(), self.name, self.location, self.history(1)[0].timestamp)

    def scan(
        self,
        where: Any = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | int | None = None,
        spark: Any = None,
    ) -> Scan:
        """The files that a read with this condition needs. ``scan(…).explain()`` says how many, of how many, and why.

        A text is analysed here, with UTC as the zone, and refused if that is not possible. With ``spark``, or for a
        Column, it is Spark that does it, so anything that Spark understands is understood.
        """
        snapshot = self._snapshot_for(spark, version, timestamp)
        if where is None or (spark is None and isinstance(where, str)):
            return Scan.of(self.name, snapshot, where)
        from lakelog.spark.read.read import spark_scan

        return spark_scan(spark, self, snapshot, where)

    def count(
        self,
        where: Any = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | int | None = None,
        spark: Any = None,
    ) -> int:
        """How many rows match. Answered by the catalog, as far as its statistics decide it; Spark reads the rest.

        Without a condition, or with one on partition columns, no file is opened. The condition means what it means in
        the Spark session that is given or active; UTC is the zone where there is none.
        """
        snapshot = self._snapshot_for(spark, version, timestamp)
        session = spark or _active_session()
        if where is None or (session is None and isinstance(where, str)):
            with suppress(ValidationError):  # Spark may understand it, and has the better message if not
                rows, undecided = Scan.of(self.name, snapshot, where).counted()
                if not undecided.num_rows:
                    return rows
        from lakelog.spark.read.read import count_rows

        return count_rows(session, self, snapshot, where)

    def _snapshot_for(self, spark: Any, version: int | None, timestamp: datetime | str | int | None) -> Snapshot:
        """A snapshot whose absence raises what a user of the session catches, if there is one."""
        if spark is None:
            return self.snapshot(version, timestamp)
        from lakelog.spark.errors import spark_door

        return spark_door(self.snapshot)(version, timestamp)

    def schema(self, version: int | None = None, timestamp: datetime | str | int | None = None) -> Any:
        """The Arrow schema at the head, at a version of the table, or as it was at a time."""
        return self.snapshot(version, timestamp).schema

    def schema_history(self) -> list[SchemaVersion]:
        """The schemas that the table has had, newest first, with what changed and by which commit."""
        with self.committer.catalog.session() as session:
            self.committer.head(session, self.id)
            rows = session.fetch(self.committer.catalog.queries["schema_history"], {"table_id": self.id})
        return [SchemaVersion.of(row) for row in rows]

    @takes(set_aside=FLAG)
    def mirror(self, *, set_aside: bool = False) -> "MirrorStatus":
        """Publishes to ``_delta_log`` what is committed and not there yet, and a checkpoint if one is due.

        ``set_aside`` first moves away whatever stands there that is not in the catalog: for when the catalog is right
        and the files are not.
        """
        mirror = self._lake.mirror
        return mirror.set_aside(self.id) if set_aside else mirror.publish(self.id)

    def mirror_status(self) -> "MirrorStatus":
        """How far ``_delta_log`` is: what is published, what is pending, and why if it does not go on."""
        return self._lake.mirror.status(self.id)

    def adopt(self) -> int:
        """Takes over commits that stand in ``_delta_log`` and not in the catalog, as the next versions; the new head.

        They may be those of another Delta writer, or Lakelog's own that a restored catalog has lost. Raises
        ``LakelogError`` if the catalog has commits of its own in their place.
        """
        from lakelog.importing.import_delta import adopt

        return adopt(self._lake, self)

    @takes(dry_run=FLAG, force=FLAG)
    def vacuum(
        self, retention_hours: float | None = None, *, dry_run: bool = False, force: bool = False
    ) -> "VacuumReport":
        """Deletes files that no version needs which was current in the last ``retention_hours``, and old orphans.

        Orphans are files of writes that failed. By default 168 hours, or what the table's property
        ``delta.deletedFileRetentionDuration`` says; fewer are refused without ``force``. Files of writes in flight
        stay. Older versions whose files are gone can no longer be read; their history stays.
        """
        from lakelog.upkeep.vacuum import vacuum

        return vacuum(self._lake, self, retention_hours, dry_run=dry_run, force=force)

    @takes(dry_run=FLAG)
    def expire_versions(
        self, older_than: datetime | str | int | None = None, keep_last: int | None = None, *, dry_run: bool = False
    ) -> "ExpiryReport":
        """Forgets versions for good, with everything that only they need. The others read exactly as before.

        What stays are the versions that were current at ``older_than`` or later, and the last ``keep_last``; the head
        always does. Deletes no file: a vacuum does that.
        """
        from lakelog.upkeep.expiry import expire_versions

        return expire_versions(self._lake, self, older_than, keep_last, dry_run=dry_run)

    def version_of(self, frame: Any) -> int | None:
        """The version of this dataset that a Spark DataFrame reads; None if it does not read it."""
        from lakelog.spark.read.read import version_of

        return version_of(frame, self)

    @in_session
    @takes(partition_by=NAMES, description=TEXT, operation=TEXT)
    def replace(
        self,
        schema: Any,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        description: str | None = None,
        operation: str = "REPLACE TABLE",
        spark: Any = None,
    ) -> CommitResult:
        """Makes another, empty table of it, in one commit: columns, partitioning and properties are replaced. Older
        versions stay as they were. Rules among them are analysed as ``Lake.create_dataset`` does."""
        snapshot = self.snapshot()
        replaced = snapshot.metadata.configuration
        protocol, metadata = definition(
            self.name, schema, partition_by, properties, description=description, replaced=replaced
        )
        described = TableMetadata(0, metadata, 0)
        if described.rules:
            from lakelog.spark.rules.validate import check_new_rules

            check_new_rules(spark, described)
        parameters = {"partitionBy": list(partition_by), "properties": dict(metadata.configuration)}
        said = Description(operation=operation, operation_parameters=parameters, extra={})
        return replace_table(snapshot, self.committer, protocol, metadata, said)

    def delete(
        self,
        where: Any = None,
        *,
        retries: int = 10,
        committer: str | None = None,
        user_metadata: str | None = None,
        spark: Any = None,
    ) -> "ChangeResult":
        """Deletes the rows that match a condition, a text or a Column, or all rows. Files of which every row goes are
        not read.

        A lost race is tried again, up to ``retries`` times, unless the winner changed what was read.
        """
        from lakelog.spark.dml import verbs

        options = verbs.options(retries, committer, user_metadata)
        return verbs.delete(self._lake, self, where, options, spark)

    def update(
        self,
        set: Mapping[str, Any],
        where: Any = None,
        *,
        retries: int = 10,
        committer: str | None = None,
        user_metadata: str | None = None,
        spark: Any = None,
    ) -> "ChangeResult":
        """Sets columns of the rows that match a condition, or of all rows, to expressions: texts in Spark's SQL, or
        Columns."""
        from lakelog.spark.dml import verbs

        options = verbs.options(retries, committer, user_metadata)
        return verbs.update(self._lake, self, set, where, options, spark)

    def merge(
        self,
        source: Any,
        condition: Any,
        *,
        alias: str | None = None,
        retries: int = 10,
        committer: str | None = None,
        user_metadata: str | None = None,
        spark: Any = None,
    ) -> "MergeBuilder[ChangeResult]":
        """A merge of a Spark or pandas DataFrame or pyarrow Table into this table, for clauses to be added.

        ``alias`` is the table's name in the expressions of condition and clauses; the source has the one that it was
        given by ``source.alias(…)``.
        """
        from lakelog.spark.dml import verbs

        options = verbs.options(retries, committer, user_metadata)
        return verbs.merge(self._lake, self, source, condition, alias, options, spark)

    def add_constraint(self, name: str, expression: str, *, retries: int = 0, spark: Any = None) -> CommitResult:
        """Adds a CHECK constraint: a condition in Spark's SQL that is TRUE for every row from now on; NULL is not.

        All rows that the table has are checked first, by the catalog's statistics where these decide, by Spark
        otherwise. Raises ``ValidationError`` for an expression that is not a condition on one row,
        ``SchemaMismatchError`` if rows break it, and ``ConcurrencyError`` if rows came while they were checked; with
        ``retries``, commits that brought none are no reason.
        """
        from lakelog.spark.rules.validate import add_constraint

        return add_constraint(self, name, expression, retries, spark)

    def optimize(
        self,
        where: str | None = None,
        *,
        zorder_by: Sequence[str] = (),
        target_file_size: int | None = None,
        min_file_size: int | None = None,
        retries: int = 10,
        spark: Any = None,
    ) -> "OptimizeResult":
        """Writes small files, and files with many deleted rows, together into larger ones. No row changes.

        ``where`` chooses partitions. ``zorder_by`` instead writes all files of them again, so that rows that are near
        each other in these columns lie in the same file, and reads that compare them skip the others. Sizes are in
        bytes: by default the table property ``delta.targetFileSize`` or 1 GiB, and files from three quarters of it on
        are left alone. Appends and whatever else leaves these files alone may be committed in the meantime;
        ``ConcurrencyError`` says that somebody removed one.
        """
        from lakelog.spark.optimize.compaction import Asked, optimize

        asked = Asked(where=where, zorder_by=zorder_by, retries=retries)
        return optimize(self._lake, self, asked, target_file_size, min_file_size, spark)

    @takes(ignore_missing_files=FLAG, retries=INTEGER)
    def restore(
        self,
        version: int | None = None,
        timestamp: datetime | str | int | None = None,
        *,
        ignore_missing_files: bool = False,
        retries: int = 0,
    ) -> RestoreResult:
        """Makes the table what it was at a version or at a time, by a new version: rows, columns and properties.

        The versions in between stay, so that a restoration can be restored, too. The protocol is never lowered.
        Applications' progress stays as it is. Raises ``LakelogError`` that names some of the files if any are gone,
        unless ``ignore_missing_files`` says to do without their rows, and ``ConcurrencyError`` as an overwrite does.
        """
        if (version is None) == (timestamp is None):
            raise ValidationError("restore", [Violation("version", "give a version or a timestamp, and not both")])
        old = self.snapshot(version, timestamp)
        at = None if timestamp is None else moment(milliseconds_of(timestamp)).isoformat()
        return restore(
            self.committer,
            self.location,
            old,
            self.snapshot(),
            {"version": version, "timestamp": at},
            ignore_missing_files=ignore_missing_files,
            retries=retries,
        )

    def clone(
        self,
        name: str,
        version: int | None = None,
        timestamp: datetime | str | int | None = None,
        *,
        location: str | os.PathLike[str] | None = None,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        shallow: bool = True,
    ) -> "Dataset":
        """See ``Lake.clone``: a dataset in the same lake that begins as this one is, or was."""
        options: dict[str, Any] = {"location": location, "properties": properties}
        return self._lake.clone(self, name, version, timestamp, replace=replace, shallow=shallow, **options)

    @takes(mode=TEXT)
    def generate(self, mode: str = "symlink_format_manifest") -> None:
        """Writes lists of the head's files for engines that read Hive's symlink tables, the only mode.

        One list, or one for each partition, in ``_symlink_format_manifest`` below the location; they are not kept up
        to date. A table with deletion vectors is refused.
        """
        from lakelog.upkeep.symlinks import generate

        generate(self, mode)


def _active_session() -> Any:
    """Spark's, if this process has one. Asking does not import Spark."""
    module = sys.modules.get("pyspark.sql")
    return None if module is None else module.SparkSession.getActiveSession()
