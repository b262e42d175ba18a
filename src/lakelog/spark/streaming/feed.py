"""What a native stream of a table's rows reads.

Spark's own file source reads a manifest instead of listing a directory; here the manifest grows with the table's
commits. Files are ordered by their version, which stands where a modification time would. What the stream started with
is kept beside the manifest, in the query's checkpoint, so that a restart sees the same files.
"""

import hashlib
import json
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.errors import DatabaseError, LakelogError
from lakelog.log.feeds.appends import Appends, are_partitioned_by
from lakelog.log.snapshot.file_groups import TO_READ, FileGroup
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.schema.mapping import readable
from lakelog.schema.spark import to_spark
from lakelog.spark.read.manifest import MANIFEST, OPTIONS, Files, manifest_of
from lakelog.spark.read.partitions import is_instant, partition_values, told_by_directories
from lakelog.spark.read.read import selected
from lakelog.spark.streaming.checkpoint import planned, taken
from lakelog.storage.hive import NULL_DIRECTORY
from lakelog.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_POLL = 0.5
"""Seconds between two looks at the table's head."""

_AGE = "100000ms"
"""In versions, not in time: how long Spark remembers the files that it has seen. They come in order."""

_STOPPED = "stopped-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a stream began."""

    location: str
    snapshot: int | None
    """The version whose rows came first, if any did."""
    first: int
    """The first version after that."""


class Feed:
    """The files that a query is to read, published where Spark looks for them."""

    def __init__(self, lake: Engine, dataset: Table, appends: Appends, checkpoint: Path) -> None:
        self.lake = lake
        self._dataset = dataset
        self._appends = appends
        self._checkpoint = checkpoint
        name = hashlib.blake2b(dataset.location.encode(), digest_size=8).hexdigest()
        self.directory = checkpoint / "lakelog" / name
        self._snapshot: Snapshot = dataset.snapshot()
        self._group = _native_group(self._snapshot)
        self._published = -1
        self._start: Start | None = None

    def begin(self, first: Callable[[], int | None]) -> None:
        """Where the stream began, now or when it ran for the first time."""
        place = self.directory / "start.json"
        if place.exists():
            self._start = Start(**json.loads(place.read_text()))
            self._check_there(planned(self._checkpoint, self._dataset.location))
            return
        if (self._checkpoint / "metadata").exists():
            raise LakelogError(
                f"the checkpoint {self._checkpoint} is of a query that did not read {self._dataset.name!r}: "
                "start the query with a new checkpoint"
            )
        version = first()
        head = self._snapshot.version
        self._start = Start(
            location=self._dataset.location,
            snapshot=head if version is None else None,
            first=head + 1 if version is None else version,
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        _replace(place, json.dumps(asdict(self._start)).encode())

    def sync(self) -> None:
        """Publishes what was committed since the last time. Raises ``LakelogError`` if that cannot be streamed."""
        head = self._dataset.version
        if head == self._published:
            return
        self._publish(list(self._files(head)))
        self._published = head

    def forget_stop(self) -> None:
        """Takes away what has made the query fail before. Spark leaves it out of a batch that it repeats."""
        for old in self.directory.glob(f"{_STOPPED}*"):
            old.unlink()

    def stop(self, error: Exception) -> None:
        """Makes the query fail: nothing that is committed from here on may be left out silently."""
        log.error("the stream of %r stops: %s", self._dataset.name, error)
        words = re.sub(r"[^A-Za-z0-9]+", "-", str(error))[:150].strip("-")
        place = self.directory / f"{_STOPPED}{words}.parquet"
        place.write_text(str(error))
        last = pa.table({"path": [str(place)], "size": [place.stat().st_size], "version": [self._dataset_version()]})
        self._publish([*self._good_files(), last])

    def frame(self, spark: "SparkSession", limit: dict[str, str]) -> "DataFrame":
        """The stream of the rows of these files."""
        partitions = self._snapshot.state.metadata.partition_columns
        fields = [readable(field) for field in self._group.schema if field.name not in partitions]
        options = {**OPTIONS, **limit, "recursiveFileLookup": "true", "maxFileAge": _AGE}
        reader = spark.readStream.schema(to_spark(pa.schema(fields))).options(**options)
        texts = {
            name: _partition_text(self._group.schema.field(name), place - len(partitions) - 1)
            for place, name in enumerate(partitions)
        }
        return selected(self._group, reader.parquet(str(self.directory)), texts)

    def _files(self, head: int) -> Iterator[Any]:
        """The files that the query has not taken yet, and those of the last version that it took some of."""
        assert self._start is not None, "begin comes first"
        last = taken(self._checkpoint, self._dataset.location)
        if self._start.snapshot is not None and last <= self._start.snapshot:
            files = self._appends.snapshot(self._start.snapshot)
            yield self._checked(files.filter(pc.greater_equal(files.column("version"), last)))
        for _, files in self._appends.commits(max(self._start.first, last), head):
            if files.num_rows:
                yield self._checked(files)

    def _good_files(self) -> list[Any]:
        """As many as there are before something that cannot be streamed."""
        found: list[Any] = []
        with suppress(Exception):
            found.extend(self._files(self._dataset_version()))
        return found

    def _dataset_version(self) -> int:
        try:
            return self._dataset.version
        except LakelogError:
            return max(self._published, 0)

    def _checked(self, files: Any) -> Any:
        """The files, if the stream can give their rows. Raises ``LakelogError``."""
        name = self._dataset.name
        if files.column("deletion_vector").null_count < files.num_rows:
            raise LakelogError(
                f"files of {name!r} have deletion vectors, which this stream cannot apply: use format('lakelog')"
            )
        newest = pc.max(files.column("schema_version")).as_py() or 0
        if newest > self._snapshot.state.metadata.schema_version and not self._reads_alike(self._dataset.snapshot()):
            raise LakelogError(f"the columns of {name!r} were changed: start the query again, and it goes on")
        metadata = self._snapshot.state.metadata
        if not are_partitioned_by(files, metadata.partition_columns):
            raise LakelogError(f"the partitioning of {name!r} was changed: start the query again, and it goes on")
        for group in self._snapshot.file_groups_as(metadata.schema, metadata.physical, files):
            if not group.native:
                raise LakelogError(
                    f"a column of {name!r} was turned into text after some of its files were written; "
                    "use format('lakelog'), or start after that"
                )
            partitions = [group.schema.field(each) for each in metadata.partition_columns]
            if partitions and group.files.num_rows:
                numbers, values = partition_values(group.files.column("partition_values"), partitions)
                if not pc.all(told_by_directories(group, partitions, numbers, values)).as_py():
                    message = f"files of {name!r} do not lie in directories that tell their partitions"
                    raise LakelogError(f"{message}: use format('lakelog')")
        self._check_there(Files(self._dataset.location, files.column("path"), files.column("size")).places)
        return files

    def _check_there(self, places: Sequence[str]) -> None:
        """Spark would leave out a file that is gone, with no more than a warning."""
        gone = next((place for place in places if not Path(place).exists()), None)
        if gone is not None:
            message = f"a file that the stream of {self._dataset.name!r} has not read yet is gone: {gone}"
            raise LakelogError(message)

    def _reads_alike(self, later: Snapshot) -> bool:
        """Whether only comments and the like were changed. If so, the table is taken as it is now."""
        ours, theirs = self._snapshot.state.metadata, later.state.metadata
        alike = ours.partition_columns == theirs.partition_columns and all(
            pa.schema(map(readable, one)).equals(pa.schema(map(readable, other)))
            for one, other in ((ours.schema, theirs.schema), (ours.physical, theirs.physical))
        )
        if alike:
            self._snapshot = later
        return alike

    def _publish(self, parts: list[Any]) -> None:
        directory = self.directory / MANIFEST
        directory.mkdir(parents=True, exist_ok=True)
        content = b"v1"
        if parts:
            files = pa.concat_tables([part.select(["path", "size", "version"]) for part in parts])
            columns = {name: files.column(name).combine_chunks() for name in files.column_names}
            known = Files(self._dataset.location, columns["path"], columns["size"])
            content = manifest_of(known, columns["version"])
        _replace(directory / "0", content)


class Keeper:
    """Looks after a feed as long as there are a lake and a Spark, and nobody else does it."""

    _all: ClassVar[dict[Path, "Keeper"]] = {}
    _guard = threading.Lock()

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._ended = threading.Event()
        self._working = threading.Lock()

    @classmethod
    @contextmanager
    def instead(cls, feed: Feed) -> "Iterator[Keeper]":
        """A new one. Whoever looked after the feed for an earlier query pauses, and ends if nothing is wrong."""
        keeper = cls(feed)
        with cls._guard:
            before = cls._all.get(feed.directory)
        with before._working if before is not None else nullcontext():
            yield keeper
            if before is not None:
                before._ended.set()
        with cls._guard:
            cls._all[feed.directory] = keeper

    def run(self, spark: "SparkSession") -> None:
        while not self._ended.wait(_POLL):
            with self._working:
                if self._ended.is_set() or not self._look(spark):
                    return

    def _look(self, spark: "SparkSession") -> bool:
        """Whether to look again."""
        feed = self._feed
        if spark.sparkContext._jsc is None:
            return False
        try:
            if not feed.lake.closed:
                feed.sync()
        except (DatabaseError, OSError) as error:
            log.warning("a stream could not look for commits, and will again: %s", error)
        except Exception as error:  # whatever it is, the query must not go on as if there were nothing
            if not feed.lake.closed:
                return not self._stop(error)
        if feed.lake.closed:
            log.warning("the lake was closed: its streams see no more commits")
        return not feed.lake.closed

    def _stop(self, error: Exception) -> bool:
        try:
            self._feed.stop(error)
        except Exception:
            log.exception("a stream could not be stopped, which is tried again")
            return False
        return True


def _native_group(snapshot: Snapshot) -> FileGroup:
    """How files of the table's own schema are read."""
    metadata = snapshot.state.metadata
    nothing = snapshot.files(columns=TO_READ).slice(0, 0)
    return snapshot.file_groups_as(metadata.schema, metadata.physical, nothing)[0]


def _partition_text(field: pa.Field, place: int) -> "Column":
    """A partition's text out of the file's path: the directory at a place from the end, which is escaped twice."""
    directory = F.element_at(F.split(F.col("_metadata.file_path"), "/"), place)
    text = _decoded(_decoded(F.element_at(F.split(directory, "="), 2)))
    text = F.when(text != NULL_DIRECTORY, text)
    return F.concat(text, F.lit("Z")) if is_instant(field) else text


def _decoded(text: "Column") -> "Column":
    return F.url_decode(F.replace(text, F.lit("+"), F.lit("%2B")))


def _replace(place: Path, content: bytes) -> None:
    """All of it, or what was there before."""
    draft = place.with_name(f".{uuid.uuid4().hex}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(place)
