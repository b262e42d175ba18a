"""Rows without those that deletion vectors delete, inside Spark.

The vectors become bitmaps, at most a bit for each row of the files, and go to every executor; a row is looked up by its
file and its index in it. A join with the numbers of all deleted rows would be larger by far, and slower.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from lakelog.log.deletion_vectors import FileVector
from lakelog.parquet.footers import Places
from lakelog.spark.read.manifest import names_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

_THREADS = 16
_BLOCK = 12
"""Two to the power of this many rows make a block; one without deleted rows takes no room."""
_WORD = 6
_WORDS = 1 << (_BLOCK - _WORD)
"""Of 64 rows each, in a block."""
_NONE = np.empty(0, np.int64)

_NAME, _KEY = "__lakelog_name", "__lakelog_key"
_PLACE, _FILE = "__lakelog_place", "__lakelog_file"
_NUMBER, _BLOCKS = "__lakelog_number", "__lakelog_blocks"


def without_deleted(
    rows: "DataFrame", path: str, row: str, places: Sequence[str], vectors: "Sequence[FileVector | None]"
) -> "DataFrame":
    """Rows of files, each with a place and perhaps a vector. Columns name a row's file and its index in it.

    Raises ``LakelogError`` for a vector that cannot be applied. A row of another file is an error when it is read: it
    would always be kept.
    """
    found = iter(deleted_indexes([vector for vector in vectors if vector is not None]))
    deleted = [_NONE if vector is None else next(found) for vector in vectors]
    names = [(name, number) for number, place in enumerate(places) for name in names_of(place)]
    paths, numbers = zip(*names, strict=True)
    table = pa.table({_NAME: pa.array(paths), _PLACE: pa.array(numbers, pa.int32())})
    known = F.broadcast(rows.sparkSession.createDataFrame(table).select("*", F.xxhash64(_NAME).alias(_KEY)))
    # By a number, which is found in half the time of a text; the texts are compared only then.
    joined = rows.join(known, F.xxhash64(path) == F.col(_KEY), "left")
    unknown = F.raise_error(F.concat(F.lit("the catalog has no deletion vector for "), F.col(path)))
    number = F.when(F.col(path) == F.col(_NAME), F.col(_PLACE)).otherwise(unknown.cast("int"))
    joined = joined.select("*", number.alias(_FILE)).drop(_NAME, _PLACE, _KEY)
    return by_index(joined, _FILE, row, deleted, kept=False).drop(_FILE)


def deleted_indexes(vectors: Sequence[FileVector]) -> "list[NDArray[np.int64]]":
    """What each of the vectors deletes. Raises ``LakelogError`` for one that cannot be read."""
    opened = Places()
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lakelog-vectors") as pool:
        return list(pool.map(lambda vector: vector.read(opened.open), vectors))


def by_index(
    rows: "DataFrame", file: str, row: str, indexes: "Sequence[NDArray[np.int64]]", *, kept: bool
) -> "DataFrame":
    """Only the rows with these indexes, or all but these: ``file`` is the column with a row's place in ``indexes``."""
    found = F.broadcast(rows.sparkSession.createDataFrame(_bitmaps(indexes)))
    return rows.join(found, (F.col(file) == F.col(_NUMBER)) & _is_set(F.col(row)), "left_semi" if kept else "left_anti")


def _is_set(row: "Column") -> "Column":
    """Whether the bitmap has the row. A block or a word beyond the last one has none."""
    block = F.get(_BLOCKS, F.shiftright(row, _BLOCK).cast("int"))
    word = F.get(block, F.shiftright(row, _WORD).bitwiseAND(F.lit(_WORDS - 1)).cast("int"))
    return F.getbit(word, row.bitwiseAND(F.lit(63)).cast("int")) == 1


def _bitmaps(deleted: "Sequence[NDArray[np.int64]]") -> pa.Table:
    """For each file its blocks, up to the last one with a deleted row: a list of words, or null if it has none."""
    found = [_blocks(rows) for rows in deleted]
    filled = np.concatenate([is_filled for is_filled, _ in found])
    words = pa.array(np.concatenate([words for _, words in found]))
    blocks = pa.ListArray.from_arrays(_offsets(filled * _WORDS), words, mask=pa.array(~filled))
    files = pa.ListArray.from_arrays(_offsets([len(is_filled) for is_filled, _ in found]), blocks)
    return pa.table({_NUMBER: pa.array(range(len(deleted)), pa.int32()), _BLOCKS: files})


def _blocks(rows: "NDArray[np.int64]") -> "tuple[NDArray[np.bool_], NDArray[np.int64]]":
    """Which blocks have deleted rows, and the words of those that do."""
    if not len(rows):
        return np.empty(0, np.bool_), np.empty(0, np.int64)
    numbers, starts = np.unique(rows >> _WORD, return_index=True)
    bits = np.left_shift(np.uint64(1), (rows & 63).astype(np.uint64))
    filled, places = np.unique(numbers >> (_BLOCK - _WORD), return_inverse=True)
    words = np.zeros((len(filled), _WORDS), np.uint64)
    words[places, numbers & (_WORDS - 1)] = np.bitwise_or.reduceat(bits, starts)
    is_filled = np.zeros(filled[-1] + 1, np.bool_)
    is_filled[filled] = True
    return is_filled, words.ravel().view(np.int64)


def _offsets(lengths: Any) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
