"""A stream into a table: each batch is one commit, and a batch that comes again changes nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from lakelog.parquet.footers import Harvest
from lakelog.spark.datasource.files import together, write_rows
from lakelog.spark.datasource.job import Job, plan_job
from lakelog.spark.datasource.options import Door, write_options
from lakelog.spark.streaming.checkpoint import query_id

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class WrittenInBatch(WriterCommitMessage):
    """What a task has written, and what was planned for it."""

    job: Job
    harvest: Harvest


class StreamWriter(DataSourceStreamArrowWriter):
    """One batch. Spark makes another writer to commit it, so the tasks' messages say what was planned for them."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", overwrite: bool) -> None:
        self._options = write_options(options, overwrite, Door.WRITE_STREAM)
        self._job = plan_job(self._options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return WrittenInBatch(self._job, write_rows(self._job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks = [message for message in messages if isinstance(message, WrittenInBatch)]
        job = self._with_progress(tasks[0].job if tasks else self._job, batchId)
        with job.place.connect(create=True) as lake:
            done = job.is_done(lake)
        if done:
            job.discard()
        else:
            job.commit(together(job, [task.harvest for task in tasks]))
        if job.directory != self._job.directory:
            # What this writer planned for itself is written by nobody.
            self._job.discard()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # As for a batch write: where no message is missing, there may have been a commit.
        if None in messages:
            for message in messages:
                if isinstance(message, WrittenInBatch):
                    message.job.discard()

    def _with_progress(self, job: Job, batch: int) -> Job:
        """The batch's number goes into the same commit, under the id that the query keeps through restarts."""
        app = query_id(self._options.checkpoint or "")
        return replace(job, options=replace(job.options, txn_app_id=app, txn_version=batch))
