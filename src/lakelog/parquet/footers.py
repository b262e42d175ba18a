"""What the footers of written Parquet files say, as the log keeps it: row counts, null counts and bounds.

A bound may be wider than the values, never narrower; where a footer leaves that in doubt, the bound is left out.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pf
import pyarrow.parquet as pq

from lakelog.errors import LakelogError
from lakelog.log.commit.files import ADD_COLUMNS, ROW_GROUP_COLUMNS
from lakelog.parquet.bound_texts import Form, form_of
from lakelog.schema.leaves import Leaf, leaf_columns
from lakelog.schema.mapping import children
from lakelog.strict_json import encode_json
from lakelog.threads import map_in_threads

_FILES_AT_ONCE = 64
_FAR = 4
"""Files are far if to read some of them takes this many times longer than the processor needs for them."""
_SHOWN = 20

_Listed = tuple[int, str, int]

FOOTERS = pa.schema(
    [
        ("file", pa.int64()),
        ("row_group", pa.int32()),
        ("row_count", pa.int64()),
        ("byte_size", pa.int64()),
        ("stats", pa.string()),
        ("problem", pa.string()),
    ]
)
"""One row for each file, without a row group, and one for each of its row groups."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that no commit knows yet.

    ``path`` is the log's name for it: relative to the table's location, URI-encoded. ``place`` is where it lies: an
    absolute path, or a URI that ``pyarrow.fs`` can open. ``modification_time`` is in milliseconds.
    ``partition_values`` are Delta's texts by physical name.
    """

    path: str
    place: str
    size: int
    modification_time: int
    partition_values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Harvest:
    """Tables for one commit: ``adds`` for ``AddFiles``, ``row_groups`` for its row groups; ``rows`` of all files."""

    adds: Any
    row_groups: Any
    rows: int


def harvest(
    files: Sequence[WrittenFile], schema: Any, indexed: Sequence[Leaf], *, data_change: bool = True, by: str = "spark"
) -> Harvest:
    """Reads the footers here, in threads. Files without rows are included, for the caller to drop.

    ``schema`` is what the files hold, under physical names; of ``indexed``, leaves that are not in it are ignored.
    ``by`` other than "spark" says that the files may come from writers that leave NaN out of a maximum. Files that
    are not whole Parquet files of their listed size raise ``LakelogError``, which names them.
    """
    listed = [(number, file.place, file.size) for number, file in enumerate(files)]
    return harvest_of(files, read_footers(listed, Layouts(leaves_in(schema, indexed)), by), data_change)


def leaves_in(schema: Any, indexed: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """The indexed leaves that a schema has, in its order."""
    wanted = {leaf.path for leaf in indexed}
    return tuple(leaf for leaf in leaf_columns(schema) if leaf.path in wanted)


def refuse_broken(files: Sequence[WrittenFile], footers: Any) -> None:
    """Raises ``LakelogError`` that names the files whose footers could not be read."""
    broken = footers.filter(footers.column("problem").is_valid())
    if broken.num_rows:
        numbers, problems = broken.column("file").to_pylist(), broken.column("problem").to_pylist()
        lines = [f"{files[number].place}: {problem}" for number, problem in zip(numbers, problems, strict=True)]
        more = f"\n  … and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        raise LakelogError(
            "expected whole Parquet files, but some footers cannot be read; nothing was committed. "
            "Write the data again, or list the files again:\n  - " + "\n  - ".join(lines[:_SHOWN]) + more
        )


def harvest_of(files: Sequence[WrittenFile], footers: Any, data_change: bool) -> Harvest:
    """What a table of ``FOOTERS`` says of files. Raises ``LakelogError`` for those that could not be read."""
    refuse_broken(files, footers)
    footers = footers.sort_by([("file", "ascending"), ("row_group", "ascending")])
    whole = footers.filter(footers.column("row_group").is_null())
    groups = footers.filter(footers.column("row_group").is_valid())
    adds: dict[str, Any] = {
        "path": [file.path for file in files],
        "size": [file.size for file in files],
        "partition_values": [encode_json(file.partition_values) for file in files],
        "stats": whole.column("stats"),
        "row_count": whole.column("row_count"),
        "modification_time": [file.modification_time for file in files],
        "data_change": pa.repeat(data_change, len(files)),
    }
    table = pa.table(adds, pa.schema([(name, ADD_COLUMNS[name]) for name in adds]))
    row_groups = groups.select([name for name in ROW_GROUP_COLUMNS if name != "path"])
    return Harvest(
        adds=table,
        row_groups=row_groups.add_column(0, "path", table.column("path").take(groups.column("file"))),
        rows=pc.sum(whole.column("row_count")).as_py() or 0,
    )


def read_footers(
    listed: Sequence[_Listed],
    layouts: "Layouts",
    by: str,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """The footers of files, each a number, a place and a size, as a table of ``FOOTERS``.

    ``progress`` is told how many of how many files were read.
    """
    places, read = Places(), []
    for batch in _batches(listed, lambda part: _Reader(layouts, by, places).read(part)):
        read.append(batch)
        if progress is not None:
            progress(min(len(read) * _FILES_AT_ONCE, len(listed)), len(listed))
    return pa.Table.from_batches(read, FOOTERS)


def _batches(listed: Sequence[_Listed], read: Callable[[Sequence[_Listed]], Any]) -> Iterator[Any]:
    """Reads files in order: by one thread while they are near, since more would wait for each other's turn with the
    interpreter, and take twice as long; by many as soon as they are far."""
    starts = range(0, len(listed), _FILES_AT_ONCE)
    parts = iter([listed[start : start + _FILES_AT_ONCE] for start in starts])
    are_far = any(_is_uri(place) and not place.startswith("file:") for _, place, _ in listed[:1])
    while not are_far and (part := next(parts, None)):
        began, worked = time.perf_counter(), time.thread_time()
        batch = read(part)
        are_far = time.perf_counter() - began > _FAR * (time.thread_time() - worked)
        yield batch
    yield from map_in_threads(read, parts)


class Layouts:
    """Where files hold the leaves: found once for each Parquet schema."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = leaves
        self.schemas: dict[str, tuple[int, Any]] = {}
        """Each Parquet schema by its text, with the number of the first file that has it."""
        self._columns: dict[str, list[_Column | None]] = {}
        self._guard = threading.Lock()

    def columns(self, schema: Any, number: int) -> "list[_Column | None]":
        # Two schemas that differ only in the name of a struct are equal to pyarrow.
        text = repr(schema).partition("\n")[2]
        known = self.schemas.get(text)
        if known is None or number < known[0]:
            with self._guard:
                known = self.schemas.get(text)
                if known is None:
                    self._columns[text] = _columns(schema, self.leaves)
                if known is None or number < known[0]:
                    self.schemas[text] = number, schema
        return self._columns[text]


class Places:
    """Opens files, with one file system for all that share a scheme and an authority: an object store's is costly."""

    def __init__(self) -> None:
        self._local = pf.LocalFileSystem()
        self._known: dict[tuple[str, str], Any] = {}
        self._guard = threading.Lock()

    def open(self, place: str) -> Any:
        if not _is_uri(place):
            return self._local.open_input_file(place)
        uri = urlsplit(place)
        if uri.scheme == "file":
            return self._local.open_input_file(unquote(uri.path))
        key = (uri.scheme, uri.netloc)
        with self._guard:
            if key not in self._known:
                # Hadoop's names for S3.
                arrow_place = f"s3{place[3:]}" if uri.scheme in ("s3a", "s3n") else place
                system, path = pf.FileSystem.from_uri(arrow_place)
                # To an object store, the bucket is the path's first part.
                self._known[key] = system, "" if path.startswith("/") else uri.netloc
        system, bucket = self._known[key]
        return system.open_input_file(bucket + unquote(uri.path))


_is_uri = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/").match


class _Range(NamedTuple):
    """What is known of a column's values: None where nothing is."""

    low: Any
    high: Any
    nulls: int | None


_UNKNOWN = _Range(None, None, None)
_EMPTY = _Range(None, None, 0)


class _Column(NamedTuple):
    """A leaf in a file: the number of its column, and its form if it can have bounds."""

    number: int
    form: Form | None


_ABSENT = _Column(-1, None)


class _Reader:
    """Reads footers one after the other."""

    def __init__(self, layouts: Layouts, by: str, places: Places) -> None:
        self._layouts = layouts
        self._by_spark = by == "spark"
        self._places = places
        self._tree = _tree([leaf.path for leaf in layouts.leaves])
        self._columns: list[_Column | None] = []
        self._rows: list[tuple[Any, ...]] = []

    def read(self, listed: Sequence[_Listed]) -> Any:
        for number, place, size in listed:
            try:
                self._read(number, place, size)
            except (pa.ArrowException, OSError, UnicodeError) as error:
                self._rows.append((number, None, None, None, None, f"{error}"))
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, FOOTERS, strict=True)]
        return pa.record_batch(arrays, FOOTERS)

    def _read(self, number: int, place: str, size: int) -> None:
        with self._places.open(place) as opened:
            found = opened.size()
            if found != size:
                raise pa.ArrowInvalid(f"was listed with {size} bytes, and has {found}")
            footer = pq.ParquetFile(opened).metadata
        self._columns = self._layouts.columns(footer.schema, number)
        # Spark sorts NaN above all numbers, and of the writers only parquet-mr does so too: in its footers NaN shows
        # as a maximum. The others take no notice of NaN, so that it may be there above their maximum.
        shows_nan = self._by_spark and footer.created_by.startswith("parquet-mr")
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        counts = [group.num_rows for group in groups]
        ranges = [self._ranges(footer, group, rows, shows_nan) for group, rows in zip(groups, counts, strict=True)]
        texts = [self._stats(rows, each) for rows, each in zip(counts, ranges, strict=True)]
        if len(groups) == 1:
            stats = texts[0]
        else:
            merged = [_merged([each[leaf] for each in ranges], counts) for leaf in range(len(self._columns))]
            stats = self._stats(footer.num_rows, merged)
        self._rows.append((number, None, footer.num_rows, None, stats, None))
        for index, group in enumerate(groups):
            self._rows.append((number, index, counts[index], group.total_byte_size, texts[index], None))

    def _ranges(self, footer: Any, group: Any, rows: int, shows_nan: bool) -> list[_Range]:
        if rows == 0:
            return [_EMPTY] * len(self._columns)
        ranges = []
        for column in self._columns:
            if column is None:
                ranges.append(_UNKNOWN)
                continue
            if column is _ABSENT:
                ranges.append(_Range(None, None, rows))
                continue
            statistics = group.column(column.number).statistics
            if statistics is None:
                ranges.append(_UNKNOWN)
                continue
            nulls = statistics.null_count if statistics.has_null_count else None
            form = column.form
            # A footer holds two bounds or none here: pyarrow hides those that are alone, and the old kind of bounds
            # (of parquet-mr before 1.10) where their order was not that of the type, which is so for strings.
            if form is None or nulls == rows or not statistics.has_min_max:
                ranges.append(_Range(None, None, nulls))
                continue
            low, high = statistics.min_raw, statistics.max_raw
            if form.value is not None:
                low, high = form.value(low), form.value(high)
            # Also where one is NaN.
            if not low <= high or (form.ancient is not None and low < form.ancient and is_rebased(footer)):
                low = high = None
            elif form.is_float and not shows_nan:
                high = None
            ranges.append(_Range(low, high, nulls))
        return ranges

    def _stats(self, rows: int, ranges: Sequence[_Range]) -> str:
        lows: list[str | None] = []
        highs: list[str | None] = []
        for column, (low, high, _) in zip(self._columns, ranges, strict=True):
            form = None if column is None else column.form
            lows.append(None if low is None or form is None else form.low_text(low))
            highs.append(None if high is None or form is None else form.high_text(high))
        nulls = [None if each.nulls is None else str(each.nulls) for each in ranges]
        return (
            f'{{"numRecords":{rows},"minValues":{_object(self._tree, lows)},'
            f'"maxValues":{_object(self._tree, highs)},"nullCount":{_object(self._tree, nulls)}}}'
        )


def _merged(ranges: Sequence[_Range], counts: Sequence[int]) -> _Range:
    """A file's range from those of its row groups. One that is unknown leaves the file's unknown."""
    nulls = [each.nulls for each in ranges]
    filled = [each for each, rows in zip(ranges, counts, strict=True) if each.nulls != rows]
    lows, highs = [each.low for each in filled], [each.high for each in filled]
    return _Range(
        low=min(lows) if lows and None not in lows else None,
        high=max(highs) if highs and None not in highs else None,
        nulls=sum(count for count in nulls if count is not None) if None not in nulls else None,
    )


def is_rebased(footer: Any) -> bool:
    """Whether Spark would move the file's ancient times to today's calendar when it reads them."""
    said = footer.metadata or {}
    version = said.get(b"org.apache.spark.version")
    return version is not None and (version < b"3" or b"org.apache.spark.legacyDateTime" in said)


def _columns(schema: Any, leaves: Sequence[Leaf]) -> list[_Column | None]:
    """Where a file of this Parquet schema holds the leaves; None where that is in doubt."""
    numbers = iter(range(len(schema)))
    # Parquet's own names of nested columns cannot be told from names with dots.
    layout = _layout(schema.to_arrow_schema(), numbers)
    return [_find(layout, leaf, schema) for leaf in leaves]


def _layout(fields: Any, numbers: Iterator[int]) -> dict[str, Any]:
    """By name: the number of a column, the layout of a struct, or None for what has no bounds."""
    layout: dict[str, Any] = {}
    for field in fields:
        kind = _stored(field.type)
        if pa.types.is_struct(kind):
            found: Any = _layout(kind, numbers)
        elif pa.types.is_nested(kind):
            _layout(children(kind), numbers)
            found = None
        else:
            found = next(numbers)
        layout[field.name] = None if field.name in layout else found
    return layout


def _stored(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _find(layout: Any, leaf: Leaf, schema: Any) -> _Column | None:
    for name in leaf.path:
        if not isinstance(layout, dict):
            return None
        if name not in layout:
            # Spark takes a column for the same in another spelling.
            return None if name.lower() in (other.lower() for other in layout) else _ABSENT
        layout = layout[name]
    return _Column(layout, form_of(schema.column(layout), leaf.type)) if isinstance(layout, int) else None


def _tree(paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The shape of an object that has a member for each path: by JSON key, the path's number or a shape."""
    tree: dict[str, Any] = {}
    for number, path in enumerate(paths):
        node = tree
        for name in path[:-1]:
            node = node.setdefault(f"{encode_json(name)}:", {})
        node[f"{encode_json(path[-1])}:"] = number
    return tree


def _object(tree: Mapping[str, Any], texts: Sequence[str | None]) -> str:
    """The JSON object of this shape, without the members that have no text."""
    members = []
    for key, node in tree.items():
        text = texts[node] if type(node) is int else _object(node, texts)
        if text is not None and text != "{}":
            members.append(key + text)
    return f"{{{','.join(members)}}}"
