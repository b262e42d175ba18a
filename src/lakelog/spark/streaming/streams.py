"""Streams into a dataset and out of one. Each row arrives once."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.errors import ValidationError, Violation
from lakelog.log.feeds.appends import FILES_PER_TRIGGER, Appends, first_version
from lakelog.log.feeds.change_feed import is_kept
from lakelog.log.feeds.columns import FEED_PROPERTY
from lakelog.log.snapshot.snapshot import milliseconds_of, moment
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.spark.datasource.registration import register
from lakelog.spark.errors import spark_door
from lakelog.spark.frames import session_for
from lakelog.spark.predicates.analysis import is_connect
from lakelog.spark.streaming.checkpoint import query_id
from lakelog.spark.streaming.feed import Feed, Keeper
from lakelog.spark.write.directories import local_path
from lakelog.spark.write.options import RETRIES
from lakelog.spark.write.write import write_dataset

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TAKEN = ("txn_app_id", "txn_version", "base_version", "spark")


@spark_door
def read_stream(
    lake: Engine,
    name: str,
    *,
    checkpoint: str,
    starting_version: int | str | None = None,
    starting_timestamp: "datetime | str | int | None" = None,
    ignore_deletes: bool = False,
    skip_change_commits: bool = False,
    read_change_feed: bool = False,
    max_files_per_trigger: int | None = None,
    max_bytes_per_trigger: int | None = None,
    spark: "SparkSession | None" = None,
) -> "DataFrame":
    """A stream of a dataset's rows: those that it has, then those that each commit appends.

    ``checkpoint`` is that of the query which reads the stream: the place where the stream began is kept there, and a
    restart goes on from it. With ``starting_version`` or ``starting_timestamp`` the stream begins with that commit;
    with ``starting_version="latest"`` with the next one.

    A commit that removes or replaces rows stops the query, unless ``skip_change_commits`` leaves all such commits out,
    or ``ignore_deletes`` those that only remove. Compactions are not seen. A change of columns stops the query, too:
    call this again, and it goes on under the new schema.

    With ``read_change_feed`` the stream has what commits did to each row, as ``read_changes`` tells it: first the rows
    that the table has, as inserts, then the changes of each commit. Spark's processes read the catalog for it, so it
    cannot be one that belongs to this process alone, as DuckDB's.
    """
    session = session_for(spark)
    problems = []
    if is_connect(session):
        problems.append(Violation("spark", "Spark Connect has no access to the driver's files: use format('lakelog')"))
    if max_files_per_trigger is not None and max_bytes_per_trigger is not None:
        problems.append(Violation("max_files_per_trigger", "give it, or max_bytes_per_trigger, not both"))
    if starting_version is not None and starting_timestamp is not None:
        problems.append(Violation("starting_version", "give it, or starting_timestamp, not both"))
    problems += [
        Violation(each, f"expected a positive integer, got {value!r}")
        for each, value in (
            ("max_files_per_trigger", max_files_per_trigger),
            ("max_bytes_per_trigger", max_bytes_per_trigger),
        )
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1)
    ]
    dataset = lake.dataset(name)
    if read_change_feed:
        url = lake.committer.catalog.url
        if url is None:
            problems.append(Violation("read_change_feed", f"Spark's processes cannot open {lake.committer.catalog!r}"))
        if not is_kept(dataset.snapshot().state.metadata):
            problems.append(Violation("read_change_feed", f"{name!r} keeps no changes: set {FEED_PROPERTY} to true"))
        problems += [
            Violation(each, "leaves out changes, which are what read_change_feed asks for")
            for each, value in (("ignore_deletes", ignore_deletes), ("skip_change_commits", skip_change_commits))
            if value
        ]
    if "://" in dataset.location:
        problems.append(Violation("location", f"only local files can be read as a stream so far: {dataset.location}"))
    if problems:
        raise ValidationError("read_stream", problems)
    if read_change_feed:
        begin = {
            "startingVersion": starting_version,
            "startingTimestamp": None if starting_timestamp is None else _iso(starting_timestamp),
        }
        limits = {"maxFilesPerTrigger": max_files_per_trigger, "maxBytesPerTrigger": max_bytes_per_trigger}
        return _feed_stream(lake, dataset, session, {**begin, **limits})
    appends = Appends(dataset, ignore_deletes=ignore_deletes, skip_change_commits=skip_change_commits)
    feed = Feed(lake, dataset, appends, Path(local_path(checkpoint)))
    with Keeper.instead(feed) as keeper:
        feed.begin(lambda: first_version(dataset, starting_version, starting_timestamp))
        feed.sync()
        feed.forget_stop()
    threading.Thread(target=keeper.run, args=(session,), name=f"lakelog-feed-{name}", daemon=True).start()
    limit = {"maxFilesPerTrigger": str(max_files_per_trigger or FILES_PER_TRIGGER)}
    if max_bytes_per_trigger is not None:
        limit = {"maxBytesPerTrigger": str(max_bytes_per_trigger)}
    return feed.frame(session, limit)


def _feed_stream(lake: Engine, dataset: Table, spark: "SparkSession", options: dict[str, Any]) -> "DataFrame":
    """By Spark's own door, where a stream of changes is."""
    catalog = lake.committer.catalog
    place = {"catalog": catalog.url, "root": lake.root, "catalogSchema": catalog.schema}
    given = {name: str(value) for name, value in {**place, **options}.items() if value is not None}
    register(spark)
    return spark.readStream.format("lakelog").options(readChangeFeed="true", **given).load(dataset.name)


def _iso(timestamp: "datetime | str | int") -> str:
    return moment(milliseconds_of(timestamp)).isoformat()


@spark_door
def write_stream(
    frame: "DataFrame",
    lake: Engine,
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
    return writer.foreachBatch(_batch_writer(lake, name, checkpoint, {"retries": RETRIES, **options})).start()


def _batch_writer(
    lake: Engine, name: str, checkpoint: str, options: dict[str, Any]
) -> "Callable[[DataFrame, int], None]":
    def write(batch: "DataFrame", number: int) -> None:
        app = query_id(checkpoint)
        write_dataset(lake, name, batch, txn_app_id=app, txn_version=number, **options)

    return write
