"""Lists of a table's files for engines that read Hive's ``SymlinkTextInputFormat``, and know no log."""

import json
import shutil
import uuid
from pathlib import Path

from lakelog.dataset import Dataset
from lakelog.errors import LakelogError, ValidationError, Violation
from lakelog.parquet.hive import directory_of
from lakelog.spark.manifest import Files

MODE = "symlink_format_manifest"
_DIRECTORY = f"_{MODE}"


def generate(dataset: Dataset, mode: str) -> None:
    """Writes the lists of the head's files: one, or one for each partition, below the table's location.

    They take the place of those that were there in one step for each partition, and are not kept up to date.
    """
    if not isinstance(mode, str) or mode.lower() != MODE:
        raise ValidationError("generate", [Violation("mode", f"expected {MODE!r}, got {mode!r}")])
    if "://" in dataset.location:
        raise LakelogError(f"lists of files can be written to local directories only so far, not to {dataset.location}")
    snapshot = dataset.snapshot()
    files = snapshot.files(columns=["path", "size", "partition_values", "deletion_vector"])
    if files.column("deletion_vector").null_count < files.num_rows:
        message = "some files have deleted rows in them, which a reader of lists would see: optimize the table first"
        raise ValidationError("generate", [Violation("deletion vectors", message)])
    root = Path(dataset.location)
    names = snapshot.state.metadata.partition_columns
    places = Files(
        dataset.location, files.column("path").combine_chunks(), files.column("size").combine_chunks()
    ).places
    lists: dict[str, list[str]] = {}
    for place, text in zip(places, files.column("partition_values").to_pylist(), strict=True):
        values = json.loads(text)
        directory = directory_of({name: values.get(name) for name in names}) if names else ""
        lists.setdefault(directory, []).append(place)
    made = root / f".{_DIRECTORY}-{uuid.uuid4().hex}"
    for directory, places in lists.items() or {"": []}.items():
        (made / directory).mkdir(parents=True, exist_ok=True)
        (made / directory / "manifest").write_text("".join(f"{place}\n" for place in sorted(places)))
    old = root / f".{_DIRECTORY}-{uuid.uuid4().hex}"
    if (root / _DIRECTORY).exists():
        (root / _DIRECTORY).rename(old)
    made.rename(root / _DIRECTORY)
    shutil.rmtree(old, ignore_errors=True)
