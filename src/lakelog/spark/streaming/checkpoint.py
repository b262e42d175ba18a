"""What Spark keeps in the checkpoint of a query: its id, and which files its sources have taken."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakelog.errors import LakelogError
from lakelog.spark.read.manifest import place_of
from lakelog.spark.write.directories import local_path


def query_id(checkpoint: str) -> str:
    """The id that a query keeps through restarts, out of its checkpoint."""
    place = Path(local_path(checkpoint)) / "metadata"
    try:
        return str(json.loads(place.read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise LakelogError(f"cannot read the query's id from {place}: {error}") from error


def taken(checkpoint: Path, location: str) -> int:
    """The last version that the query has taken files of, by the log that Spark keeps of that."""
    found = []
    for _, entries in _logs(checkpoint):
        ours = [entry for entry in entries if _is_below(location, entry)]
        # One that has taken nothing yet may be another source of the same table.
        if ours or not entries:
            found.append(max((int(entry["timestamp"]) for entry in ours), default=-1))
    return min(found, default=-1)


def planned(checkpoint: Path, location: str) -> list[str]:
    """Files of a batch that Spark has begun and not finished, so that it will read them again."""
    begun, done = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
    if max(begun, default=-1) <= max(done, default=-1):
        return []
    return [
        place_of(entry["path"])
        for number, entries in _logs(checkpoint)
        for entry in entries
        if _is_below(location, entry) and int(entry["batchId"]) == number
    ]


def _logs(checkpoint: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """For each source of the query the last log of the files that it took, with its number."""
    for source in checkpoint.glob("sources/*"):
        number = max(_numbers(source), default=-1)
        newest = [path for path in (source / str(number), source / f"{number}.compact") if path.exists()]
        lines = newest[-1].read_text().splitlines()[1:] if newest else []
        try:
            yield number, [json.loads(line) for line in lines]
        except ValueError:  # of a source that is not one of files
            continue


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    found = (re.fullmatch(r"([0-9]+)(?:\.compact)?", path.name) for path in directory.iterdir())
    return [int(match[1]) for match in found if match]


def _is_below(location: str, entry: Any) -> bool:
    """Whether an entry of a log is a file of the table."""
    return isinstance(entry, dict) and "path" in entry and place_of(entry["path"]).startswith(f"{location}/")
