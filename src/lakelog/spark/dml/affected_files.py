"""Which files hold rows that match a condition: by the catalog as far as it knows, by one scan for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.log.deletion_vectors import live_rows
from lakelog.log.pruning.predicate import Everything, Predicate
from lakelog.log.snapshot.scan import Scan
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.table import Table
from lakelog.spark.dml.deletion_vectors import indexes_by_file
from lakelog.spark.frames import aliased
from lakelog.spark.predicates.analysis import condition_of, empty_frame
from lakelog.spark.predicates.determinism import refuse_changing
from lakelog.spark.read.partitions import files_matched_by_partition
from lakelog.spark.read.read import ROW_FILE, numbers_of, plain_path, read_located

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The files of a snapshot that hold a matching row."""

    whole: pa.Table
    """Every row of them matches."""
    part: pa.Table
    """Some do, and some do not."""
    part_rows: int
    """How many do."""
    predicate: Predicate
    """Where matching rows can be."""
    indexes: "Sequence[NDArray[np.int64]]" = ()
    """Of each file of ``part`` the rows that do, if that was asked for."""

    @property
    def files(self) -> pa.Table:
        return pa.concat_tables([self.whole, self.part])

    @property
    def whole_rows(self) -> int:
        """Rows of the files that match as a whole, as far as the catalog knows."""
        return int(pc.sum(live_rows(self.whole)).as_py() or 0)


def matched_files(
    spark: "SparkSession",
    dataset: Table,
    snapshot: Snapshot,
    condition: "str | Column | None",
    alias: str | None = None,
    *,
    indexed: bool = False,
) -> Matched:
    """With ``indexed`` also which rows match. One scan looks for them, in the files where the catalog leaves that open.

    Raises ``ValidationError`` for a condition that Spark refuses, or that may be another one the second time.
    """
    if condition is None:
        return _all_of(snapshot)
    known = condition_of(spark, snapshot.schema, condition, alias)
    refuse_changing(aliased(empty_frame(spark, snapshot.schema), alias), condition, "condition")
    candidates = snapshot.files(known.rows)
    nothing = candidates.slice(0, 0)
    by_partition = files_matched_by_partition(spark, snapshot, candidates, condition, alias)
    if by_partition is not None:
        return Matched(whole=by_partition, part=nothing, part_rows=0, predicate=known.rows)
    whole, undecided = Scan(dataset.name, snapshot, known).decided()
    if not undecided.num_rows:
        return Matched(whole=whole, part=nothing, part_rows=0, predicate=known.rows)
    rows = aliased(read_located(spark, dataset.location, snapshot, undecided), alias).where(condition)
    indexes = indexes_by_file(rows, dataset.location, undecided) if indexed else {}
    if indexed:
        counts = {position: len(found) for position, found in indexes.items()}
    else:
        counts = _rows_by_file(rows, dataset.location, undecided)
    touched = undecided.take(pa.array(list(counts), pa.int64()))
    found = pa.chunked_array([list(counts.values())], pa.int64())
    # A file whose number of rows nobody knows is written again, which is always right.
    is_whole = pc.fill_null(pc.equal(found, live_rows(touched)), False)
    is_part = pc.invert(is_whole)
    return Matched(
        whole=pa.concat_tables([whole, touched.filter(is_whole)]),
        part=touched.filter(is_part),
        part_rows=int(pc.sum(found.filter(is_part)).as_py() or 0),
        predicate=known.rows,
        indexes=[each for each, kept in zip(indexes.values(), is_part.to_pylist(), strict=False) if kept],
    )


def _rows_by_file(located: "DataFrame", location: str, files: pa.Table) -> dict[int, int]:
    """How many of these rows lie in which of the files, by their position in the table, in its order."""
    numbers = numbers_of(location, files)
    counted = located.groupBy(ROW_FILE).count().collect()
    return dict(sorted((numbers[plain_path(row[0])], int(row[1])) for row in counted))


def _all_of(snapshot: Snapshot) -> Matched:
    files = snapshot.files()
    return Matched(whole=files, part=files.slice(0, 0), part_rows=0, predicate=Everything())
