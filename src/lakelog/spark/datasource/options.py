"""What stands in ``option(…)``: Delta's names, without case. Everything that is wrong is said at once."""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.durability import DURABILITIES
from lakelog.log.snapshot.snapshot import milliseconds_of
from lakelog.opening.connect import open_engine
from lakelog.opening.engine import Engine
from lakelog.spark.write.options import RETRIES, WriteOptions


class Door(Enum):
    """Which of Spark's four ways an option was given to."""

    READ = "spark.read"
    READ_STREAM = "spark.readStream"
    WRITE = "df.write"
    WRITE_STREAM = "df.writeStream"


_READS = frozenset({Door.READ, Door.READ_STREAM})
_WRITES = frozenset({Door.WRITE, Door.WRITE_STREAM})
_KNOWN: dict[str, frozenset[Door]] = {
    **dict.fromkeys(("catalog", "root", "catalogSchema", "path"), _READS | _WRITES),
    **dict.fromkeys(("readChangeFeed", "startingVersion", "startingTimestamp"), _READS),
    **dict.fromkeys(("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp"), frozenset({Door.READ})),
    **dict.fromkeys(
        (
            "maxFilesPerTrigger",
            "maxBytesPerTrigger",
            "ignoreDeletes",
            "skipChangeCommits",
        ),
        frozenset({Door.READ_STREAM}),
    ),
    **dict.fromkeys(
        ("mergeSchema", "partitionColumns", "userMetadata", "maxRecordsPerFile", "compression", "durability"),
        _WRITES,
    ),
    **dict.fromkeys(
        ("overwriteSchema", "replaceWhere", "partitionOverwriteMode", "txnAppId", "txnVersion"),
        frozenset({Door.WRITE}),
    ),
    "checkpointLocation": frozenset({Door.WRITE_STREAM}),
}
_REFUSED = {
    "ignoreChanges": "would give rows again that a change only moved; skipChangeCommits leaves such commits out",
    "failOnDataLoss": "a file that is gone is always an error",
    "dataChange": "only Lakelog's own compaction may say that it changes nothing",
    "replaceOn": "use replaceWhere on partition columns, or lakelog.write_dataset",
    "replaceUsing": "use replaceWhere on partition columns, or lakelog.write_dataset",
    "optimizeWrite": "repartition the DataFrame before it is written",
    "partitionBy": "Spark refuses it, too: name the columns of a new table by partitionColumns",
}
_HARMLESS = {"ignoreChanges": "false", "failOnDataLoss": "true", "dataChange": "true"}
"""Values that ask for nothing else than what happens."""

_ELSEWHERE = "the processes that Spark starts may be in other directories, also in some that are deleted afterwards"
_SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_BYTES = re.compile(r"([0-9]+)\s*([kmgt]?)b?", re.IGNORECASE)
_Read = TypeVar("_Read")
_CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none", "uncompressed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A table, and the catalog that knows it."""

    catalog: str
    root: str | None
    catalog_schema: str
    table: str
    durability: str = "full"

    def connect(self, *, create: bool) -> Engine:
        """Opens the catalog in this process."""
        return open_engine(
            Engine,
            self.catalog,
            self.root,
            create=create,
            pool_size=2,
            schema=self.catalog_schema,
            durability=self.durability,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a read asks for; whether it is a stream shows later."""

    place: Place
    version: int | None
    timestamp: str | None
    change_feed: bool
    starting_version: int | str | None
    starting_timestamp: str | None
    ending_version: int | None
    ending_timestamp: str | None
    max_files: int | None
    max_bytes: int | None
    ignore_deletes: bool
    skip_change_commits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a write asks for."""

    place: Place
    write: WriteOptions
    merge_schema: bool
    checkpoint: str | None


def read_options(options: Mapping[str, str], *doors: Door) -> ReadOptions:
    """Raises ``ValidationError`` with every problem. Without ``doors``, either kind of read will do."""
    given = _Given(options, frozenset(doors) or _READS)
    found = ReadOptions(
        place=given.place(),
        version=given.number("versionAsOf", 0),
        timestamp=given.time("timestampAsOf"),
        change_feed=given.flag("readChangeFeed"),
        starting_version=given.starting_version(),
        starting_timestamp=given.time("startingTimestamp"),
        ending_version=given.number("endingVersion", 0),
        ending_timestamp=given.time("endingTimestamp"),
        max_files=given.number("maxFilesPerTrigger", 1),
        max_bytes=given.size("maxBytesPerTrigger"),
        ignore_deletes=given.flag("ignoreDeletes"),
        skip_change_commits=given.flag("skipChangeCommits"),
    )
    given.not_both("versionAsOf", "timestampAsOf")
    given.not_both("startingVersion", "startingTimestamp")
    given.not_both("endingVersion", "endingTimestamp")
    _check_feed(given, found, frozenset(doors))
    given.finish()
    return found


def _check_feed(given: "_Given", found: ReadOptions, doors: frozenset[Door]) -> None:
    """What is said of a range of changes, and what is asked for instead of it."""
    if found.change_feed:
        for name in ("versionAsOf", "timestampAsOf", "ignoreDeletes", "skipChangeCommits"):
            if given.text(name) not in (None, "false"):
                given.wrong(name, "goes without readChangeFeed, which gives all changes of a range of versions")
        if doors == {Door.READ} or given.text("endingVersion") or given.text("endingTimestamp"):
            if found.starting_version is None and found.starting_timestamp is None:
                given.wrong("startingVersion", "is needed, or startingTimestamp: 0 is the first version")
            if found.starting_version == "latest":
                given.wrong("startingVersion", "'latest' is for streams: expected a version")
        return
    alone = ("endingVersion", "endingTimestamp")
    for name in (*alone, "startingVersion", "startingTimestamp") if doors == {Door.READ} else alone:
        if given.text(name) is not None:
            given.wrong(name, "goes with readChangeFeed; one version is read by versionAsOf or timestampAsOf")


def write_options(options: Mapping[str, str], overwrite: bool, door: Door) -> SinkOptions:
    """Raises ``ValidationError`` with every problem."""
    given = _Given(options, frozenset({door}))
    write = WriteOptions(
        mode="overwrite" if overwrite else "append",
        partition_by=given.names("partitionColumns"),
        partition_overwrite_mode=(given.text("partitionOverwriteMode") or "static").lower(),
        replace_where=given.text("replaceWhere"),
        overwrite_schema=given.flag("overwriteSchema"),
        retries=RETRIES,
        txn_app_id=given.text("txnAppId"),
        txn_version=given.number("txnVersion", 0),
        user_metadata=given.text("userMetadata"),
        compression=given.codec(),
        max_records_per_file=given.number("maxRecordsPerFile", 1),
    )
    found = SinkOptions(
        place=given.place(),
        write=write,
        merge_schema=given.flag("mergeSchema"),
        checkpoint=given.text("checkpointLocation"),
    )
    if door is Door.WRITE_STREAM:
        if overwrite:
            given.wrong("outputMode", "a stream appends: complete mode would replace the table with every batch")
        if found.checkpoint is None:
            given.wrong("checkpointLocation", "is needed: the query's id in it makes each batch count once")
    given.problems += [Violation(_as_option(each.where), each.message) for each in write.problems()]
    given.finish()
    return found


class _Given:
    """Options as they were given, and what is wrong with them."""

    def __init__(self, options: Mapping[str, str], doors: frozenset[Door]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._doors = doors
        self.problems: list[Violation] = []
        for name, value in options.items():
            self._check_name(name, value)

    def wrong(self, name: str, message: str) -> None:
        self.problems.append(Violation(name, message))

    def finish(self) -> None:
        if self.problems:
            raise ValidationError('options of format("lakelog")', list(dict.fromkeys(self.problems)))

    def place(self) -> Place:
        catalog, table = self.text("catalog"), self.text("path")
        if catalog is None:
            self.wrong("catalog", "is needed: the URL that lakelog.connect takes")
        elif catalog.startswith("duckdb:"):
            message = (
                "a DuckDB catalog belongs to one process, and Spark plans in others: "
                "use lakelog.read_dataset, lakelog.write_dataset or lakelog.spark.write_stream"
            )
            self.wrong("catalog", message)
        elif re.match("sqlite:///(?!/)", catalog):
            self.wrong("catalog", f"is relative, and {_ELSEWHERE}: write sqlite:////absolute/path")
        root = self.text("root")
        if root is not None and "://" not in root and not Path(root).is_absolute():
            self.wrong("root", f"is relative, and {_ELSEWHERE}: write an absolute path")
        durability = self.text("durability") or "full"
        if durability not in DURABILITIES:
            self.wrong("durability", f"expected one of {', '.join(DURABILITIES)}, got {durability!r}")
        if table is None:
            self.wrong("path", 'is needed: the table\'s name, as in load("events")')
        return Place(
            catalog=catalog or "",
            root=root,
            catalog_schema=self.text("catalogSchema") or "lakelog",
            table=table or "",
            durability=durability,
        )

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def flag(self, name: str) -> bool:
        value = (self.text(name) or "false").lower()
        if value not in ("true", "false"):
            self.wrong(name, f"expected true or false, got {value!r}")
        return value == "true"

    def number(self, name: str, least: int) -> int | None:
        return self._read(name, f"an integer from {least} on", lambda text: _at_least(int(text), least))

    def size(self, name: str) -> int | None:
        return self._read(name, "a number of bytes, such as 1000000 or 512m", _size)

    def time(self, name: str) -> str | None:
        value = self.text(name)
        try:
            if value is not None:
                milliseconds_of(value)
        except ValidationError as error:
            self.wrong(name, error.violations[0].message)
        return value

    def starting_version(self) -> int | str | None:
        value = self.text("startingVersion")
        if value is not None and value.lower() == "latest":
            return "latest"
        return self.number("startingVersion", 0)

    def names(self, name: str) -> list[str] | None:
        """Names between commas, or as a JSON list where they have some in them."""
        return self._read(name, "names between commas, or a JSON list of them", _names)

    def codec(self) -> str:
        value = (self.text("compression") or "zstd").lower()
        if value not in _CODECS:
            self.wrong("compression", f"expected one of {', '.join(_CODECS)}, got {value!r}")
        return "none" if value == "uncompressed" else value

    def not_both(self, one: str, other: str) -> None:
        if self.text(one) is not None and self.text(other) is not None:
            self.wrong(one, f"goes without {other}: give one of them")

    def _read(self, name: str, expected: str, read: Callable[[str], _Read]) -> _Read | None:
        value = self.text(name)
        try:
            return None if value is None else read(value)
        except ValueError:
            self.wrong(name, f"expected {expected}, got {value!r}")
            return None

    def _check_name(self, name: str, value: str) -> None:
        lowered = name.lower()
        known = {each.lower(): each for each in (*_KNOWN, *_REFUSED)}
        ours = known.get(lowered)
        if ours in _REFUSED:
            if value.lower() != _HARMLESS.get(ours):
                self.wrong(ours, f"is not possible here: {_REFUSED[ours]}")
        elif ours is not None:
            if not _KNOWN[ours] & self._doors and lowered not in _SPARKS_OWN:
                places = " and ".join(sorted(door.value for door in _KNOWN[ours]))
                self.wrong(ours, f"is an option of {places}")
        # Settings of Spark and Hadoop have dots in their names, and concern others.
        elif lowered not in _SPARKS_OWN and "." not in name:
            close = [known[each] for each in difflib.get_close_matches(lowered, known, 1)]
            self.wrong(name, f"is not an option{''.join(f'; did you mean {each}?' for each in close)}")


def _as_option(name: str) -> str:
    """What ``write_dataset`` calls ``replace_where`` is ``replaceWhere`` here."""
    return re.sub("_(.)", lambda found: found[1].upper(), name)


def _at_least(number: int, least: int) -> int:
    if number < least:
        raise ValueError(number)
    return number


def _size(text: str) -> int:
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return _at_least(int(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "), 1)


def _names(text: str) -> list[str]:
    names = json.loads(text) if text.strip().startswith("[") else [name.strip() for name in text.split(",")]
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(text)
    return list(names)
