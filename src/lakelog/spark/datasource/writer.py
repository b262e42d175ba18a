"""A batch write: planned and committed in processes that Spark starts for it, written by its tasks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lakelog.parquet.footers import Harvest
from lakelog.spark.datasource.files import together, write_rows
from lakelog.spark.datasource.job import plan_job
from lakelog.spark.datasource.options import Door, write_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class Written(WriterCommitMessage):
    """What a task has written."""

    harvest: Harvest


class BatchWriter(DataSourceArrowWriter):
    """One commit. What does not fit is refused when Spark makes the writer, which is before the first file."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        self._job = plan_job(write_options(options, overwrite, Door.WRITE), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Written(write_rows(self._job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._job.skipped:
            tasks = [message.harvest for message in messages if isinstance(message, Written)]
            self._job.commit(together(self._job, tasks))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Spark calls this after a commit that failed, too, when files may be part of the table. Then no message is
        # missing, as without one of them it does not commit.
        if None in messages:
            self._job.discard()
