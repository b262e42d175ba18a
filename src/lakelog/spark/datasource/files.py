"""A task's work: rows into Parquet files, and what their footers say. It needs a directory, and no catalog."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from lakelog.errors import LakelogError, SchemaMismatchError, Violation
from lakelog.parquet.footers import Harvest, WrittenFile, harvest
from lakelog.schema.leaves import join_path
from lakelog.schema.mapping import loosened, with_field_ids
from lakelog.schema.spark_text import spark_text
from lakelog.spark.datasource.job import Job
from lakelog.spark.write.directories import logged
from lakelog.storage.hive import NULL_DIRECTORY, directory_of, log_path

_ROW_GROUP_ROWS = 1 << 20
_ROW_GROUP_BYTES = 64 << 20
_HELD_BYTES = 256 << 20
"""Of all partitions together, before the largest is written."""
_OPEN_FILES = 64


def write_rows(job: Job, batches: Iterable[pa.RecordBatch]) -> Harvest:
    """Writes the rows that a task gets. If that fails, its files go."""
    files = _Files(job)
    try:
        rows = 0
        for batch in batches:
            if not job.skipped:
                files.add(pa.Table.from_batches([batch]))
                rows += batch.num_rows
        found = _harvest(job, files.finish())
        if found.rows != rows:
            raise LakelogError(f"{rows} rows were written, and the files have {found.rows}: nothing was committed")
    except BaseException:
        files.discard()
        raise
    return found


def together(job: Job, tasks: Sequence[Harvest]) -> Harvest:
    """All that was written."""
    found = [_harvest(job, []), *tasks]
    return Harvest(
        adds=pa.concat_tables([each.adds for each in found]),
        row_groups=pa.concat_tables([each.row_groups for each in found]),
        rows=sum(each.rows for each in found),
    )


def _harvest(job: Job, files: list[WrittenFile]) -> Harvest:
    partitions = set(job.metadata.partition_columns)
    indexed = [leaf for leaf in job.metadata.indexed if leaf.path[0] not in partitions]
    return harvest(files, _data_schema(job), indexed)


def _data_schema(job: Job) -> pa.Schema:
    """What files hold. They need not say NOT NULL, and pyarrow writes no null struct around a field that does."""
    partitions = set(job.metadata.partition_columns)
    physical = with_field_ids(job.metadata.physical) if job.metadata.mapped else job.metadata.physical
    return loosened(pa.schema([each for each in physical if each.name not in partitions]))


@dataclass
class _Partition:
    """Rows of one partition that wait to be written, and the file that they go to."""

    values: dict[str, str | None]
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    writer: Any = None
    place: Path | None = None
    in_file: int = 0

    def hold(self, table: pa.Table) -> None:
        self.tables.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes

    def take(self) -> pa.Table:
        table = pa.concat_tables(self.tables)
        self.tables, self.rows, self.bytes = [], 0, 0
        return table


class _Files:
    """The files of one task. Rows are held back until they fill a row group."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._schema = _data_schema(job)
        self._partitions: dict[tuple[str | None, ...], _Partition] = {}
        self._made: list[tuple[Path, dict[str, str | None]]] = []
        context = TaskContext.get()
        # An attempt that loses leaves its files behind, under names of its own.
        self._name = f"part-{0 if context is None else context.partitionId():05d}-{uuid.uuid4()}"
        self._limit = job.options.max_records_per_file

    def add(self, incoming: pa.Table) -> None:
        """Raises ``SchemaMismatchError`` for rows that the table cannot take."""
        table = self._job.plan.conform(incoming)
        for key, rows in _split(table, self._job):
            partition = self._partitions.get(key) or self._new_partition(key)
            partition.hold(rows.select(self._schema.names).cast(self._schema))
            if partition.rows >= _ROW_GROUP_ROWS or partition.bytes >= _ROW_GROUP_BYTES:
                self._flush(partition)
        while sum(each.bytes for each in self._partitions.values()) > _HELD_BYTES:
            self._flush(max(self._partitions.values(), key=lambda each: each.bytes))

    def finish(self) -> list[WrittenFile]:
        for partition in self._partitions.values():
            self._flush(partition)
            self._close(partition)
        return [self._written(place, values) for place, values in self._made]

    def discard(self) -> None:
        for partition in self._partitions.values():
            with suppress(Exception):
                self._close(partition)
        for place, _ in self._made:
            place.unlink(missing_ok=True)

    def _new_partition(self, key: tuple[str | None, ...]) -> _Partition:
        values = dict(zip(self._job.metadata.partition_columns, key, strict=True))
        _check_reserved(values)
        if self._job.replaced is not None:
            self._job.replaced.check(values)
        return self._partitions.setdefault(key, _Partition(values))

    def _flush(self, partition: _Partition) -> None:
        if not partition.tables:
            return
        table = partition.take()
        while table.num_rows:
            if partition.writer is None:
                self._open(partition)
            room = table.num_rows if self._limit is None else self._limit - partition.in_file
            part = table.slice(0, room)
            partition.writer.write_table(part, row_group_size=_ROW_GROUP_ROWS)
            partition.in_file += part.num_rows
            table = table.slice(part.num_rows)
            if partition.in_file == self._limit:
                self._close(partition)

    def _open(self, partition: _Partition) -> None:
        opened = [each for each in self._partitions.values() if each.writer is not None]
        if len(opened) >= _OPEN_FILES:
            self._close(max(opened, key=lambda each: each.in_file))
        compression = self._job.options.compression
        suffix = "" if compression == "none" else f".{compression}"
        directory = Path(self._job.location, self._job.directory, directory_of(partition.values))
        directory.mkdir(parents=True, exist_ok=True)
        partition.place = directory / f"{self._name}-c{len(self._made):03d}{suffix}.parquet"
        self._made.append((partition.place, partition.values))
        partition.writer = pq.ParquetWriter(
            partition.place,
            self._schema,
            compression=compression,
            store_schema=False,
            store_decimal_as_integer=True,
        )

    def _close(self, partition: _Partition) -> None:
        if partition.writer is not None:
            partition.writer.close()
            partition.writer, partition.in_file = None, 0

    def _written(self, place: Path, values: Mapping[str, str | None]) -> WrittenFile:
        return WrittenFile(
            path=log_path(place.relative_to(self._job.location).as_posix()),
            place=str(place),
            size=place.stat().st_size,
            modification_time=place.stat().st_mtime_ns // 1_000_000,
            partition_values=logged(values, self._job.metadata.partitions),
        )


def _split(table: pa.Table, job: Job) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """The rows of each partition, by its values as the catalog's texts."""
    columns = job.metadata.partition_columns
    if not columns or not table.num_rows:
        yield from [((), table)] if table.num_rows else []
        return
    texts = pa.table(
        [_texts(table.column(name).combine_chunks()) for name in columns], list(map(str, range(len(columns))))
    )
    rows = texts.append_column("rows", pa.array(range(table.num_rows)))
    groups = rows.group_by(texts.schema.names).aggregate([("rows", "list")])
    *keys, places = (groups.column(name) for name in (*texts.schema.names, "rows_list"))
    for number, key in enumerate(zip(*(column.to_pylist() for column in keys), strict=True)):
        yield key, table if groups.num_rows == 1 else table.take(places[number].values)


def _texts(array: Any) -> Any:
    """As the catalog keeps them: null and the empty string are null, times are in UTC."""
    texts = spark_text(array.chunk(0) if isinstance(array, pa.ChunkedArray) else array)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def _check_reserved(values: Mapping[str, str | None]) -> None:
    problems = [
        Violation(join_path([name]), f"rows with the reserved text {NULL_DIRECTORY}")
        for name, value in values.items()
        if value == NULL_DIRECTORY
    ]
    if problems:
        raise SchemaMismatchError("values of the incoming data", problems)
