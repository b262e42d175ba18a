"""Lists of a table's files for engines that read Hive's ``SymlinkTextInputFormat``, and know no log."""

import os
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakelog.catalog.stored import stored_json
from lakelog.errors import LakelogError, ValidationError, Violation
from lakelog.storage.hive import directory_of
from lakelog.storage.uris import uri_of
from lakelog.strict_json import describe

if TYPE_CHECKING:
    from lakelog.log.table import Table

MODE = "symlink_format_manifest"
_DIRECTORY = f"_{MODE}"
_LIST = "manifest"


def generate(dataset: "Table", mode: str) -> None:
    """Writes the lists of the head's files: one, or one for each partition, below the table's location.

    Each takes the place of the one that was there in one step. They are not kept up to date.
    """
    if not isinstance(mode, str) or mode.lower() != MODE:
        raise ValidationError("generate", [Violation("mode", f"expected {MODE!r}, got {describe(mode)}")])
    if "://" in dataset.location:
        raise LakelogError(f"lists of files can be written to local directories only so far, not to {dataset.location}")
    snapshot = dataset.snapshot()
    files = snapshot.files(columns=["path", "partition_values", "deletion_vector"])
    if files.column("deletion_vector").null_count < files.num_rows:
        message = "some files have deleted rows in them, which a reader of lists would see: optimize the table first"
        raise ValidationError("generate", [Violation("deletion vectors", message)])
    names = snapshot.state.metadata.partition_columns
    lists: dict[str, list[str]] = {} if names else {"": []}
    for path, text in zip(*(files.column(name).to_pylist() for name in ("path", "partition_values")), strict=True):
        values = stored_json(text)
        directory = directory_of({name: values.get(name) for name in names})
        # As Hadoop writes it, without escapes.
        place = unquote(uri_of(dataset.location, path)).replace("file:///", "file:/", 1)
        lists.setdefault(directory, []).append(place)
    root = Path(os.path.realpath(dataset.location), _DIRECTORY)
    _refuse_links(root, lists)
    for directory, places in lists.items():
        _put(root / directory, "".join(f"{place}\n" for place in sorted(places)))
    _remove_others(root, {root / directory / _LIST for directory in lists})


def _refuse_links(root: Path, lists: Collection[str]) -> None:
    """Raises ``LakelogError`` if a list would be written somewhere else, by a link in the place of a directory."""
    for directory in {root, *(root / each for each in lists)}:
        if os.path.realpath(directory) != str(directory):
            raise LakelogError(
                f"{directory} is, or lies behind, a symbolic link, so that the lists would be written elsewhere: "
                "nothing was written. Remove the link"
            )


def _put(directory: Path, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    new = directory / f".{_LIST}-{uuid.uuid4().hex}"
    new.write_text(text)
    new.replace(directory / _LIST)


def _remove_others(root: Path, lists: Collection[Path]) -> None:
    """Removes the lists of partitions that are gone."""
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            if (name == _LIST or name.startswith(f".{_LIST}-")) and Path(directory, name) not in lists:
                Path(directory, name).unlink(missing_ok=True)
        with suppress(OSError):  # It is not empty.
            Path(directory).rmdir()
