"""A stream into a dataset: each batch is one commit, and a batch that comes again changes nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.errors import LakelogError, ValidationError, Violation
from lakelog.lake import Lake
from lakelog.spark.directories import local_path
from lakelog.spark.predicates import is_connect
from lakelog.spark.write import write_dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_RETRIES = 10
_TAKEN = ("txn_app_id", "txn_version", "base_version", "spark")


def write_stream(
    frame: "DataFrame",
    lake: Lake,
    name: str,
    *,
    checkpoint: str,
    trigger: dict[str, Any] | None = None,
    query_name: str | None = None,
    **options: Any,
) -> "StreamingQuery":
    """Starts a query that appends a stream's rows to a dataset, exactly once.

    The query's id, which its checkpoint keeps, and the number of each batch are committed together with the rows: a
    batch that Spark repeats after a crash is skipped if it was committed. ``trigger`` is what Spark's
    ``DataStreamWriter.trigger`` takes, ``{"availableNow": True}`` for instance; ``options`` are those of
    ``write_dataset``. A race with another writer is tried again up to ten times unless ``retries`` says otherwise.
    """
    taken = [Violation(name, "is set by the stream itself") for name in _TAKEN if name in options]
    if is_connect(frame.sparkSession):
        message = "Spark Connect runs batches in another process: use writeStream.format('lakelog')"
        taken.append(Violation("frame", message))
    if not frame.isStreaming:
        taken.append(Violation("frame", "is not a stream: use write_dataset"))
    if options.get("mode", "append") != "append":
        taken.append(Violation("mode", "a stream appends"))
    if taken:
        raise ValidationError("write_stream", taken)
    writer = frame.writeStream.option("checkpointLocation", checkpoint)
    if query_name is not None:
        writer = writer.queryName(query_name)
    writer = writer.trigger(**(trigger or {"processingTime": "0 seconds"}))
    return writer.foreachBatch(_batch_writer(lake, name, checkpoint, {"retries": _RETRIES, **options})).start()


def _batch_writer(
    lake: Lake, name: str, checkpoint: str, options: dict[str, Any]
) -> "Callable[[DataFrame, int], None]":
    def write(batch: "DataFrame", number: int) -> None:
        app = query_id(checkpoint)
        write_dataset(lake, name, batch, txn_app_id=app, txn_version=number, **options)

    return write


def query_id(checkpoint: str) -> str:
    """The id that a query keeps through restarts, out of its checkpoint."""
    place = Path(local_path(checkpoint)) / "metadata"
    try:
        return str(json.loads(place.read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise LakelogError(f"cannot read the query's id from {place}: {error}") from error
