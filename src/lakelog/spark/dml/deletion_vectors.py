"""Rows that go while their files stay: deletion vectors, for tables that ask for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.actions import DeletionVector
from lakelog.changes.restore import added_again
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.log.deletion_vectors import PROPERTY, VectorFile, check_writable, live_rows, loosened, vectors_of
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.validation.features import supported_features
from lakelog.spark.read.deleted_rows import deleted_indexes
from lakelog.spark.read.read import ROW_FILE, ROW_INDEX, numbers_of, plain_path
from lakelog.storage.uris import root_uri
from lakelog.strict_json import encode_json

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

_FEATURE = "deletionVectors"
_WORD, _BITS, _WORDS = "__lakelog_word", "__lakelog_bits", "__lakelog_words"

Indexes = Mapping[int, "NDArray[np.int64]"]
"""The indexes of rows in their files, in order, by the files' positions in a table of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Files that stay, and for each of them the indexes of the rows that go."""

    files: pa.Table
    rows: "Sequence[NDArray[np.int64]]"

    @property
    def count(self) -> int:
        """Rows that go."""
        return sum(map(len, self.rows))

    @property
    def updated(self) -> int:
        """Files that have a vector already, which is replaced by a larger one."""
        return int(self.files.num_rows - self.files.column("deletion_vector").null_count)

    def write(self, location: str, own: OwnDirectory) -> pa.Table:
        """Writes the vectors, and gives the files as they are with them, for a commit to add."""
        before = [each for each in vectors_of(self.files, root_uri(location)) if each is not None]
        gone = iter(deleted_indexes(before))
        has_vector = self.files.column("deletion_vector").is_valid().to_pylist()
        deleted = [
            np.union1d(rows, next(gone)) if has else rows for rows, has in zip(self.rows, has_vector, strict=True)
        ]
        found = VectorFile.of(own.name, deleted)
        own.begin()
        place = Path(location, found.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            file.write(found.content)
        return self._with(found.vectors)

    def _with(self, vectors: Sequence[DeletionVector]) -> pa.Table:
        added = added_again(self.files)
        stats, rows = (added.column(name).to_pylist() for name in ("stats", "row_count"))
        texts = {
            "stats": [loosened(text, count) for text, count in zip(stats, rows, strict=True)],
            "deletion_vector": [encode_json(vector.to_dict()) for vector in vectors],
        }
        for name, values in texts.items():
            added = added.set_column(added.column_names.index(name), name, pa.array(values, pa.string()))
        return added


def wants_vectors(snapshot: Snapshot) -> bool:
    """Whether a table's rows are deleted by vectors. Raises ``ConfigurationError`` if none can be written here."""
    if not snapshot.metadata.is_on(PROPERTY) or _FEATURE not in supported_features(snapshot.protocol):
        return False
    check_writable()
    return True


def can_be_marked(snapshot: Snapshot, files: pa.Table) -> bool:
    """Whether files can have vectors: readers have to know how many rows each has.

    Files that are not committed yet get none: for streams, what comes with a vector is no appended file.
    """
    is_new = pc.greater(files.column("version"), snapshot.version)
    return int(files.column("row_count").null_count) == 0 and not pc.any(is_new).as_py()


def indexes_by_file(located: "DataFrame", location: str, files: pa.Table) -> Indexes:
    """Where rows lie that ``read_located`` gave, in the order of the files.

    They travel as words of 64 bits, so that it costs little where they are few and where they are many.
    """
    words = located.groupBy(ROW_FILE, word()).agg(bits())
    found = words.groupBy(ROW_FILE).agg(in_words()).toArrow()
    return indexes_of(found, numbers_of(location, files))


def word() -> "Column":
    """The number of the word that a row is in."""
    return F.shiftright(ROW_INDEX, 6).alias(_WORD)


def bits(where: "Column | None" = None) -> "Column":
    """Of the rows in a word, those that are meant, as bits."""
    bit = F.expr(f"shiftleft(1L, CAST({ROW_INDEX} & 63 AS INT))")
    return F.bit_or(bit if where is None else F.when(where, bit)).alias(_BITS)


def in_words() -> "Column":
    """All words of a file that have a row that is meant."""
    return F.collect_list(F.when(F.col(_BITS).isNotNull(), F.struct(_WORD, _BITS))).alias(_WORDS)


def indexes_of(found: pa.Table, numbers: Mapping[str, int]) -> Indexes:
    """What Spark has found of each file, as ``in_words`` says it, in the order of the files."""
    paths = found.column(ROW_FILE).to_pylist()
    indexes = {
        numbers[plain_path(path)]: _indexes(words.values)
        for path, words in zip(paths, found.column(_WORDS), strict=True)
        if len(words)
    }
    return dict(sorted(indexes.items()))


def parted(files: pa.Table, indexes: Indexes) -> tuple[pa.Table, Marked]:
    """The files of which every row goes, and those of which some do. The number of rows in each is known."""
    touched = files.take(pa.array(list(indexes), pa.int64()))
    rows = list(indexes.values())
    is_whole = pc.equal(live_rows(touched), pa.array(list(map(len, rows)), pa.int64()))
    some = [each for each, whole in zip(rows, is_whole.to_pylist(), strict=True) if not whole]
    return touched.filter(is_whole), Marked(files=touched.filter(pc.invert(is_whole)), rows=some)


def vector_metrics(marked: Marked | None, whole: pa.Table, of: str = "") -> dict[str, int]:
    """Delta's metrics of deletion vectors; a merge's have another name."""
    removed = whole.num_rows - int(whole.column("deletion_vector").null_count)
    updated = 0 if marked is None else marked.updated
    return {
        f"num{of}DeletionVectorsAdded": 0 if marked is None else marked.files.num_rows - updated,
        f"num{of}DeletionVectorsRemoved": removed,
        f"num{of}DeletionVectorsUpdated": updated,
    }


def _indexes(words: pa.StructArray) -> "NDArray[np.int64]":
    numbers, bits = (words.field(name).to_numpy(zero_copy_only=False) for name in (_WORD, _BITS))
    flags = np.unpackbits(bits.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    row, bit = np.nonzero(flags)
    return np.sort((numbers.astype(np.int64)[row] << 6) + bit)
