"""Exactly these files to Spark's own Parquet reader, without listing a directory.

Few files are named one by one. Many go into a scan manifest: the log that Spark's streaming sink keeps, which Spark
reads instead of listing, so that a hundred thousand files take a second. That format is internal to Spark: a canary
tries it once per application, and where it does not hold, files are named one by one again.
"""

import hashlib
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.spark.frames import setting
from lakelog.spark.predicates.analysis import is_connect
from lakelog.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FEW = 32
"""Files up to which Spark looks at each on the driver; more would start a job."""

LIFETIME = 24 * 3600.0
"""Seconds for which a manifest is kept after it was last used: Spark Connect reads it again for each action."""

SCANS = "_lakelog/scans"
"""Where manifests lie below a table's location. Readers of directories skip names with an underscore."""

OPTIONS = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "mergeSchema": "false"}
"""Settings of the session must not make files disappear."""

MANIFEST = "_spark_metadata"
_IGNORED = "spark.sql.streaming.fileStreamSink.metadata.ignored"
_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_ABSOLUTE = r"^(?:/|[A-Za-z][A-Za-z0-9+.-]*:)"
_PATTERN = re.compile(r"[{}\[\]*?\\]")
"""Characters for which Spark takes a path for a pattern."""

_SPACES = r"\u0080-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_QUOTED_BY_JAVA = re.compile(rf"[^A-Za-z0-9/\-_.!~'()*,;:$&+=@\u0080-\U0010ffff]|[{_SPACES}]")
_REMEMBERED = 16
_REMEMBERED_FILES = 300_000
"""Of all remembered manifests: Spark keeps some 70 MB for every hundred thousand files."""

_guard = threading.Lock()
_trusted: dict[str, bool] = {}
_relations: "OrderedDict[tuple[Any, ...], tuple[DataFrame, int]]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class Files:
    """Data files as the log names them: encoded paths, relative to the table's location or absolute, and sizes."""

    location: str
    paths: Any
    sizes: Any

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def uris(self) -> Any:
        """Where each file lies, as an encoded URI."""
        root = uri_of(self.location)
        relative = pc.binary_join_element_wise(f"{root}/", self.paths, "")
        is_absolute = pc.match_substring_regex(self.paths, _ABSOLUTE)
        if not pc.any(is_absolute).as_py():
            return relative
        host = root[: len(root) - len(_path(root))]
        rooted = pc.binary_join_element_wise(host, self.paths, "")
        absolute = pc.if_else(pc.starts_with(self.paths, "/"), rooted, self.paths)
        return pc.if_else(is_absolute, absolute, relative)

    @property
    def places(self) -> list[str]:
        """Where each file lies, as Hadoop's paths are written: nothing is encoded."""
        return [place_of(uri) for uri in self.uris.to_pylist()]


def read_files(
    spark: "SparkSession", schema: "StructType", files: Files, *, version: int, partitioned: bool = False
) -> "DataFrame":
    """Exactly these files, one or more. ``partitioned`` says that directories below the location give columns."""
    options = OPTIONS | ({"basePath": files.location} if partitioned else {"recursiveFileLookup": "true"})
    reader = spark.read.schema(schema).options(**options)
    places = files.places if len(files) <= FEW else None
    if places is not None and not any(map(_PATTERN.search, places)):
        return reader.parquet(*places)
    home = _home(files.location, inside=partitioned)
    if home is not None and _is_trusted(spark, home):
        try:
            directory = write_manifest(home, version, files)
        except OSError as error:
            log.warning("no scan manifest can be written, so files are listed one by one: %s", error)
        else:
            clean(home)
            key = (spark, directory, schema.json(), partitioned)
            return _remembered(key, len(files), lambda: reader.parquet(directory))
    places = places or files.places
    if any(map(_PATTERN.search, places)):
        reader = reader.option("__globPaths__", "false")
    with _listed_on_the_driver(spark, len(places)):
        return reader.parquet(*places)


def manifest_of(files: Files, times: Any = 0) -> bytes:
    """What Spark reads instead of listing: each file with its size, and when it was written, which only streams use."""
    text = pc.binary_join_element_wise(
        '{"path":"',
        files.uris,
        '","size":',
        pc.cast(files.sizes, pa.string()),
        ',"isDir":false,"modificationTime":',
        pc.cast(times, pa.string()),
        ',"blockReplication":1,"blockSize":134217728,"action":"add"}',
        "",
    )
    return "\n".join(["v1", *text.to_pylist()]).encode()


def write_manifest(home: Path, version: int, files: Files) -> str:
    """A directory that Spark reads as exactly these files. The same files get the same directory."""
    content = manifest_of(files)
    directory = home / f"{version}-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    if not _is_whole(directory, len(content)):
        draft = home / f".{uuid.uuid4().hex}"
        (draft / MANIFEST).mkdir(parents=True)
        (draft / MANIFEST / "0").write_bytes(content)
        try:
            # Fails if it is there already: somebody may be about to read it.
            draft.rename(directory)
        except OSError:
            if not _is_whole(directory, len(content)):
                _discard(directory)
                draft.rename(directory)
            else:
                shutil.rmtree(draft, ignore_errors=True)
    return str(directory)


def clean(home: Path, lifetime: float = LIFETIME) -> None:
    """Removes manifests that were not used for a while. What cannot be removed stays, and is no error."""
    oldest = time.time() - lifetime
    with suppress(OSError):
        for entry in list(home.iterdir()):
            with suppress(OSError):
                if entry.stat().st_mtime < oldest:
                    _discard(entry)


def uri_of(place: str) -> str:
    """A path of Hadoop's as an encoded URI."""
    if "://" not in place:
        return f"file://{quote(place)}"
    path = _path(place)
    return place[: len(place) - len(path)] + quote(path)


def place_of(uri: str) -> str:
    """The inverse: a local path, or a path of Hadoop's with its scheme."""
    path = _path(uri)
    head = uri[: len(uri) - len(path)]
    return unquote(path) if head in ("file:", "file://", "file://localhost") else head + unquote(path)


def metadata_path(place: str) -> str:
    """What ``_metadata.file_path`` gives for a file, local ones without their scheme: a URI as Java writes it."""
    path = _path(place)
    return place[: len(place) - len(path)] + _QUOTED_BY_JAVA.sub(lambda match: quote(match[0], safe=""), path)


def names_of(place: str) -> list[str]:
    """What ``_metadata.file_path`` gives for a file. Versions of Spark differ in the slashes of a local one."""
    path = metadata_path(place)
    return [f"file:{path}", f"file://{path}"] if path.startswith("/") else [path]


def _path(place: str) -> str:
    """The part of a place or URI that is its path."""
    found = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?", place)
    return place[found.end() :] if found else place


def _home(location: str, *, inside: bool) -> Path | None:
    """Where manifests for a table may lie: below its location, or, if they need not, with temporary files."""
    place = place_of(uri_of(location)) if location.startswith("file:") else location
    if "://" not in place:
        home = Path(place) / SCANS
        with suppress(OSError):
            home.mkdir(parents=True, exist_ok=True)
            (probe := home / f".{uuid.uuid4().hex}").mkdir()
            probe.rmdir()
            return home
    if inside:
        return None
    home = Path(tempfile.gettempdir()) / f"lakelog-scans-{hashlib.blake2b(location.encode()).hexdigest()[:16]}"
    home.mkdir(mode=0o700, exist_ok=True)
    return home


def _is_whole(directory: Path, size: int) -> bool:
    """Whether a manifest is there; if so, it counts as used now."""
    try:
        if (directory / MANIFEST / "0").stat().st_size != size:
            return False
        directory.touch()
    except OSError:
        return False
    return True


def _discard(directory: Path) -> None:
    """A manifest without its log would be read as no files at all, so it goes whole: first its name, then the rest."""
    aside = directory.with_name(f".{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):
        directory.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _application(spark: "SparkSession") -> str:
    return str(spark.session_id if is_connect(spark) else spark.sparkContext.applicationId)  # type: ignore[attr-defined]


def _is_trusted(spark: "SparkSession", home: Path) -> bool:
    """Whether this Spark reads manifests as it should, tried once for each application."""
    if str(spark.conf.get(_IGNORED, "false")).lower() == "true":
        log.warning("%s is set: files are listed one by one, which is slow for many", _IGNORED)
        return False
    key = _application(spark)
    if key not in _trusted:
        _trusted[key] = _canary(spark, home)
    return _trusted[key]


def _canary(spark: "SparkSession", home: Path) -> bool:
    """A manifest of two of three files must give the rows of these two."""
    nest = home / f".{uuid.uuid4().hex}"
    try:
        nest.mkdir()
        for number in range(3):
            pq.write_table(pa.table({"n": pa.array([number], pa.int32())}), nest / f"{number}.parquet")
        names = ["0.parquet", "2.parquet"]
        sizes = [(nest / name).stat().st_size for name in names]
        directory = write_manifest(nest, 0, Files(str(nest), pa.array(names), pa.array(sizes, pa.int64())))
        reader = spark.read.schema("n int").options(**OPTIONS, recursiveFileLookup="true")
        found = sorted(row.n for row in reader.parquet(directory).collect())
    except Exception as error:  # whatever it is, there is another way
        found, reason = [], str(error).partition("\n")[0]
    else:
        reason = f"expected the rows 0 and 2, found {found}"
    finally:
        shutil.rmtree(nest, ignore_errors=True)
    if found != [0, 2]:
        log.warning("this Spark does not read scan manifests, so files are listed one by one: %s", reason)
    return found == [0, 2]


def _remembered(key: tuple[Any, ...], files: int, read: "Callable[[], DataFrame]") -> "DataFrame":
    """The same DataFrame for the same manifest: Spark could not tell that two of them are equal, for ``cache()``."""
    with _guard:
        if key in _relations:
            _relations.move_to_end(key)
            return _relations[key][0]
    frame = read()
    with _guard:
        _relations[key] = frame, files
        while len(_relations) > _REMEMBERED or _are_too_many():
            _relations.popitem(last=False)
    return frame


def _are_too_many() -> bool:
    """Whether the remembered manifests hold too many files. One is always kept."""
    return len(_relations) > 1 and sum(files for _, files in _relations.values()) > _REMEMBERED_FILES


@contextmanager
def _listed_on_the_driver(spark: "SparkSession", count: int) -> Iterator[None]:
    """Spares Spark a job with a task for each file. Connect lists when it pleases, so it is left alone there."""
    if count <= FEW or is_connect(spark):
        yield
        return
    with setting(spark, _THRESHOLD, str(count + 1)):
        yield
