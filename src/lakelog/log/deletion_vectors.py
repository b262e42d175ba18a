"""Delta's deletion vectors: which rows of a data file are deleted though they are still in it.

A vector is a 64-bit roaring bitmap of row indexes, in the log itself or in a file that may hold several. Whatever does
not fit together is an error: a vector is applied as it was written, or nothing is read.
"""

import base64
import json
import os
import re
import uuid
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import DeletionVector
from lakelog.catalog.stored import stored_json
from lakelog.errors import ConfigurationError, LakelogError
from lakelog.storage.uris import is_absolute

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyroaring import BitMap64

_MAGIC = 1681511377
_FORMAT = 1
_UUID_CHARACTERS = 20
_MOST_ROWS = 1 << 63

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = bytes(_B85[_Z85.index(each)] if each in _Z85 else 0 for each in range(256))
"""The two alphabets write the same numbers; 0 is in neither of them."""
_TO_Z85 = bytes.maketrans(_B85, _Z85)

_TIGHT = re.compile(r'("tightBounds"\s*:\s*)true')

PROPERTY = "delta.enableDeletionVectors"
"""The table property by which rows are deleted by vectors instead of writing their files again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVector:
    """The deletion vector of one data file."""

    file: str
    """The data file, as the log names it."""
    rows: int | None
    """All rows of the data file, if the log says how many."""
    root: str
    """The table's location, as a URI."""
    vector: DeletionVector

    @property
    def place(self) -> str | None:
        """The URI of the file that the vector lies in; None if it lies in the log. Raises ``ValueError``."""
        name = self.vector.path_or_inline_dv
        match self.vector.storage_type:
            case "u":
                prefix, code = name[:-_UUID_CHARACTERS], name[-_UUID_CHARACTERS:]
                directory = f"{self.root.rstrip('/')}/{quote(prefix)}".rstrip("/")
                return f"{directory}/deletion_vector_{uuid.UUID(bytes=_from_z85(code))}.bin"
            case "p":
                root = urlsplit(self.root)
                return f"{root.scheme}://{root.netloc}{name}" if name.startswith("/") else name
            case "i":
                return None
        raise ValueError(f"is stored as {self.vector.storage_type!r}, which is none of 'u', 'p' and 'i'")

    @property
    def is_outside(self) -> bool:
        """Whether the vector lies in a file that is not below the table's location. Raises ``ValueError``."""
        place = self.place
        if place is None or self.vector.storage_type == "u":
            return False
        found, root = urlsplit(place), urlsplit(self.root)
        if (_scheme(found.scheme), found.netloc) != (_scheme(root.scheme), root.netloc):
            return True
        path, above = unquote(found.path), unquote(root.path).rstrip("/")
        if found.scheme == "file":
            # A log may name the directory that a link leads to, or one below the table that leads elsewhere.
            path, above = os.path.realpath(path), os.path.realpath(above)
        return not path.startswith(f"{above}/")

    def read(self, open_file: Callable[[str], Any]) -> "NDArray[np.int64]":
        """The indexes of the deleted rows, in order. ``open_file`` gives a ``pyarrow.NativeFile`` for a URI.

        Raises ``LakelogError`` for a vector that is not there, is not whole, or is not the one that the log means.
        """
        place = None
        try:
            place = self.place
            # A shallow clone has its vectors where it has its files.
            if self.is_outside and not is_absolute(self.file):
                raise ValueError("it lies outside of the table, and nothing there is opened")
            data = self._inline() if place is None else self._stored(place, open_file)
            return self._rows(data)
        except FileNotFoundError as error:
            raise self._unusable(place, "the file is gone") from error
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._unusable(place, str(error)) from error

    def _unusable(self, place: str | None, problem: str) -> LakelogError:
        where = f"of {self.file!r}" if place is None else f"of {self.file!r}, {place},"
        return LakelogError(f"the deletion vector {where} cannot be applied, so the file is not read: {problem}")

    def _inline(self) -> bytes:
        data = _from_z85(self.vector.path_or_inline_dv)
        # Groups of four bytes: up to three at the end are padding.
        if not 0 <= len(data) - self.vector.size_in_bytes < 4:
            raise ValueError(f"the log says {self.vector.size_in_bytes} bytes, and has {len(data)}")
        return data[: self.vector.size_in_bytes]

    def _stored(self, place: str, open_file: Callable[[str], Any]) -> bytes:
        # Right after the byte with the format's version, if nothing is said.
        offset = 1 if self.vector.offset is None else self.vector.offset
        size = self.vector.size_in_bytes
        with open_file(place) as opened:
            total = opened.size()
            if total < offset + size + 8:
                raise ValueError(f"expected {size} bytes at {offset}, and the file ends at {total}")
            version = opened.read_at(1, 0)
            if version != bytes([_FORMAT]):
                raise ValueError(f"expected format {_FORMAT}, found {version[0]}")
            found = opened.read_at(size + 8, offset)
        said = int.from_bytes(found[:4], "big")
        if said != size:
            raise ValueError(f"expected {size} bytes at {offset}, and the file says {said}")
        data = bytes(found[4:-4])
        if int.from_bytes(found[-4:], "big") != zlib.crc32(data):
            raise ValueError(f"the {size} bytes at {offset} do not match their checksum")
        return data

    def _rows(self, data: bytes) -> "NDArray[np.int64]":
        magic = int.from_bytes(data[:4], "little")
        if magic != _MAGIC:
            raise ValueError(f"expected a bitmap with the number {_MAGIC}, found {magic}")
        bitmap = _bitmap().deserialize(data[4:])
        if len(bitmap) != self.vector.cardinality:
            raise ValueError(f"the log says {self.vector.cardinality} deleted rows, and it has {len(bitmap)}")
        rows = _MOST_ROWS if self.rows is None else self.rows
        if len(bitmap) and bitmap.max() >= rows:
            raise ValueError(f"it deletes the row with index {bitmap.max()} of {rows}")
        return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFile:
    """A file with deletion vectors, as it is to be written below a table's location."""

    path: str
    content: bytes
    vectors: Sequence[DeletionVector]

    @classmethod
    def of(cls, directory: str, deleted: "Sequence[NDArray[np.int64]]") -> "VectorFile":
        """A new file in a directory, with a vector for each set of row indexes. Raises ``ConfigurationError``."""
        name = uuid.uuid4()
        content, vectors = bytearray([_FORMAT]), []
        for rows in deleted:
            bitmap = _bitmap()(array("Q", rows.astype(np.uint64).tobytes()))
            bitmap.run_optimize()
            data = _MAGIC.to_bytes(4, "little") + bitmap.serialize()
            vectors.append(
                DeletionVector(
                    storage_type="u",
                    path_or_inline_dv=directory + base64.b85encode(name.bytes).translate(_TO_Z85).decode(),
                    offset=len(content),
                    size_in_bytes=len(data),
                    cardinality=len(rows),
                )
            )
            content += len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
        return cls(path=f"{directory}/deletion_vector_{name}.bin", content=bytes(content), vectors=vectors)


def check_writable() -> None:
    """Raises ``ConfigurationError`` if vectors cannot be written here."""
    _bitmap()


def loosened(stats: str | None, rows: int) -> str:
    """Statistics of a file in which rows are deleted: bounds hold, and need not be values that are left.

    The text of every number stays, since a number that was read and written again may be another one. Where that
    cannot be, only the number of rows is left, all of which are counted.
    """
    said = stored_json(stats) if stats else {}
    text = str(stats)
    if "numRecords" in said:
        if said.get("tightBounds") is False:
            return text
        if "tightBounds" not in said:
            return f'{text.rstrip().removesuffix("}")},"tightBounds":false}}'
        if said["tightBounds"] is True and len(_TIGHT.findall(text)) == 1:
            return _TIGHT.sub(r"\1false", text)
    return json.dumps({"numRecords": rows, "tightBounds": False})


def vectors_of(files: pa.Table, root: str) -> list[FileVector | None]:
    """The deletion vectors of files as ``Snapshot.files`` gives them; ``root`` is the table's location as a URI."""
    columns = (files.column(name).to_pylist() for name in ("path", "row_count", "deletion_vector"))
    return [
        None if text is None else FileVector(file=path, rows=rows, root=root, vector=DeletionVector.from_json(text))
        for path, rows, text in zip(*columns, strict=True)
    ]


def live_rows(files: pa.Table) -> Any:
    """Of each file the number of rows that are not deleted; null where the log does not say how many it has."""
    vectors = files.column("deletion_vector")
    if vectors.null_count == files.num_rows:
        return files.column("row_count")
    deleted = [0 if text is None else stored_json(text)["cardinality"] for text in vectors.to_pylist()]
    return pc.subtract(files.column("row_count"), pa.array(deleted, pa.int64()))


def _scheme(name: str) -> str:
    name = name.lower()
    return "s3" if name in ("s3a", "s3n") else name


def _from_z85(text: str) -> bytes:
    if len(text) % 5:
        raise ValueError(f"expected Z85 text, found {len(text)} characters")
    return base64.b85decode(text.encode().translate(_TO_B85))


def _bitmap() -> "type[BitMap64]":
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        message = "deletion vectors need pyroaring: pip install 'lakelog[delta]'"
        raise ConfigurationError(message) from error
    return BitMap64
