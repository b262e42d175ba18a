"""Rows of files, brought together so that each group of them becomes one file. All of it happens inside Spark."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from lakelog.changes.bins import Bin
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.spark.expressions import quoted
from lakelog.spark.optimize.zorder import along_curve
from lakelog.spark.read.manifest import Files, names_of
from lakelog.spark.read.read import ROW_FILE, read_located

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NAME, _NUMBER = "__lakelog_name", "__lakelog_number"


def gathered(
    spark: "SparkSession",
    location: str,
    snapshot: Snapshot,
    files: Any,
    bins: Sequence[Bin],
    columns: Sequence["Column"] = (),
) -> "DataFrame":
    """The rows of the bins' files, in as many of Spark's partitions as there shall be new files.

    With ``columns``, each bin is sorted along the curve through them, and cut where a new file begins.
    """
    chosen = files.take([position for each in bins for position in each.files])
    numbers = [number for number, each in enumerate(bins) for _ in each.files]
    located = read_located(spark, location, snapshot, chosen)
    names = [F.col(quoted(name)) for name in snapshot.schema.names]
    rows = located.join(_known(spark, location, chosen, numbers), F.col(ROW_FILE) == F.col(_NAME), "left")
    # A row of nobody's file would be lost.
    unknown = F.raise_error(F.concat(F.lit("expected a row of a file that is compacted, found one of "), ROW_FILE))
    number = F.when(F.col(_NUMBER).isNotNull(), F.col(_NUMBER)).otherwise(unknown.cast("int"))
    rows = rows.select(*names, number.alias(_NUMBER))
    if columns:
        return along_curve(rows, F.col(_NUMBER), columns, bins).select(*names)
    return rows.repartitionById(len(bins), F.col(_NUMBER)).select(*names)


def _known(spark: "SparkSession", location: str, files: Any, numbers: Sequence[int]) -> "DataFrame":
    """The number of each file's bin, by what ``_metadata.file_path`` says of it."""
    places = Files(location, files.column("path").combine_chunks(), files.column("size").combine_chunks()).places
    pairs = [(name, number) for place, number in zip(places, numbers, strict=True) for name in names_of(place)]
    names, found = zip(*pairs, strict=True)
    table = pa.table({_NAME: pa.array(names, pa.string()), _NUMBER: pa.array(found, pa.int32())})
    return F.broadcast(spark.createDataFrame(table))
