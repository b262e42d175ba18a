"""Footers that are read by Spark's executors."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import udf

from lakelog.parquet.footers import FOOTERS, Harvest, Layouts, WrittenFile, harvest_of, leaves_in, read_footers
from lakelog.schema.leaves import Leaf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_PER_TASK = 512


def harvest_in_spark(
    spark: "SparkSession",
    files: Sequence[WrittenFile],
    schema: Any,
    indexed: Sequence[Leaf],
    *,
    data_change: bool = True,
    by: str = "spark",
) -> Harvest:
    """As ``harvest``, for thousands of files in an object store, or files that only executors reach.

    The executors need ``lakelog``. For files on a local disk, the threads of ``harvest`` are faster.
    """
    if not files:
        return harvest_of(files, FOOTERS.empty_table(), data_change)
    tasks = [
        pa.table(
            {
                "file": pa.array(range(start, start + len(part)), pa.int64()),
                "place": pa.array([file.place for file in part], pa.string()),
                "size": pa.array([file.size for file in part], pa.int64()),
            }
        )
        for start in range(0, len(files), _FILES_PER_TASK)
        if (part := files[start : start + _FILES_PER_TASK])
    ]
    # mapInArrow would need pandas, so that Arrow's own bytes go through a plain function.
    read = udf(partial(_task, leaves=leaves_in(schema, indexed), by=by), "binary", useArrow=False)
    listed = spark.createDataFrame([(_to_bytes(task),) for task in tasks], "listed binary")
    found = listed.repartition(len(tasks)).select(read("listed")).collect()
    return harvest_of(files, pa.concat_tables([_from_bytes(row[0]) for row in found]), data_change)


def _task(listed: bytes, leaves: Sequence[Leaf], by: str) -> bytes:
    columns = (column.to_pylist() for column in _from_bytes(listed).columns)
    return _to_bytes(read_footers(list(zip(*columns, strict=True)), Layouts(leaves), by))


def _to_bytes(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(data: bytes) -> Any:
    return pa.ipc.open_stream(data).read_all()
