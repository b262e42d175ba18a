"""A Spark session that needs no setting up, on a laptop without network as well."""

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.errors import ConfigurationError
from lakelog.spark.java import find_java
from lakelog.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark's default, INT96, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.adaptive.enabled": "true",
    # Without it a filter that is pushed into Parquet takes 1582-10-05 to 1582-10-14 for other days, and misses rows.
    "spark.sql.datetime.java8API.enabled": "true",
}
"""For every session, a Spark Connect server's too."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOOPBACK = "127.0.0.1"


def session(
    name: str = "lakelog", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> "SparkSession":
    """The Spark session to work with: the one that is active, as it is, otherwise a new one.

    Args:
        name: the new session's application name.
        master: ``local[*]``, ``spark://…``, or ``sc://…`` for a Spark Connect server. Otherwise it is that of the
            config, of SPARK_REMOTE, PYSPARK_SUBMIT_ARGS, spark-defaults.conf, SPARK_MASTER or MASTER, and at last
            ``local[*]``.
        config: Spark's settings. They win over those of spark-submit, PYSPARK_SUBMIT_ARGS and spark-defaults.conf,
            and these over the defaults of this module.

    Raises:
        ConfigurationError: pyspark is not installed, or there is no Java to run it.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("a Spark session needs pyspark: pip install 'lakelog[spark]'") from error
    active = _active_session()
    if active is not None:
        log.debug("using the active Spark session as it is")
        return active
    settings = settings_of(name, master=master, config=config)
    target = settings.get("spark.remote") or settings["spark.master"]
    if not target.startswith("sc://") and not _started_by_spark():
        _prepare_environment(target)
    log.debug("starting a Spark session at %s", target)
    return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def settings_of(name: str, *, master: str | None = None, config: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a new session is started with: the arguments, and the defaults that nobody has set otherwise."""
    outside = _outside_settings()
    given = {"spark.app.name": name, **(config or {})}
    place, target = _target(master, given, outside)
    given[place] = target
    defaults = dict(SQL_SETTINGS)
    if find_spec("pandas") is None:
        # Spark would fall back to this for each function, with a warning.
        defaults["spark.sql.execution.pythonUDF.arrow.enabled"] = "false"
    # A Connect session takes none of these, even from the server that it starts.
    if place == "spark.master" and not _started_by_spark():
        defaults |= _start_settings(target)
        if theirs := given.get(JAVA_OPTIONS, outside.get(JAVA_OPTIONS)):
            given[JAVA_OPTIONS] = f"{defaults.get(JAVA_OPTIONS, '')} {theirs}".strip()
    return {key: value for key, value in defaults.items() if key not in outside} | given


def _active_session() -> "SparkSession | None":
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        return None
    # A context that was stopped without its session leaves the session in its place.
    return session if is_remote() or session.sparkContext._jsc is not None else None


def _started_by_spark() -> bool:
    """Whether spark-submit started this Python: then Java runs already, and was set up by others."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _outside_settings() -> dict[str, str]:
    """What was set before Python came in: by spark-submit, spark-defaults.conf and PYSPARK_SUBMIT_ARGS."""
    if _started_by_spark():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    settings = {}
    directory = _configuration_directory()
    if directory is not None and (directory / "spark-defaults.conf").is_file():
        for line in (directory / "spark-defaults.conf").read_text(encoding="utf-8").splitlines():
            if setting := re.match(r"\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*$", line):
                settings[setting[1]] = setting[2]
    for option, value in pairwise(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))):
        if option == "--master":
            settings["spark.master"] = value
        elif option in ("--conf", "-c") and "=" in value:
            key, _, value = value.partition("=")
            settings[key] = value
    return settings


def _configuration_directory() -> Path | None:
    if directory := os.environ.get("SPARK_CONF_DIR"):
        return Path(directory)
    home = os.environ.get("SPARK_HOME")
    return Path(home, "conf") if home else None


def _target(master: str | None, given: Mapping[str, str], outside: Mapping[str, str]) -> tuple[str, str]:
    """The setting that says where Spark runs, and its value. The order is that of spark-submit."""
    if master:
        return "spark.remote" if master.startswith("sc://") else "spark.master", master
    for settings in (given, {"spark.remote": os.environ.get("SPARK_REMOTE")}, outside):
        for key in ("spark.remote", "spark.master"):
            if value := settings.get(key):
                return key, value
    return "spark.master", os.environ.get("SPARK_MASTER") or os.environ.get("MASTER") or "local[*]"


def _start_settings(target: str) -> dict[str, str]:
    """Settings that count when Java starts."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY") or f"{_driver_megabytes()}m",
    }
    directory = _configuration_directory()
    if directory is None or not (directory / "log4j2.properties").is_file():
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        # Log4j itself has a word to say where the machine's name is unknown.
        settings[JAVA_OPTIONS] = f"-Dlog4j.configurationFile={quiet} -Dlog4j2.statusLoggerLevel=OFF"
    if target.startswith("local"):
        settings |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            # Spark's 200 are for a cluster.
            "spark.sql.shuffle.partitions": str(max(4, os.cpu_count() or 1)),
            "spark.sql.warehouse.dir": _temporary_directory(),
        }
    return settings


def _prepare_environment(target: str) -> None:
    os.environ["JAVA_HOME"] = str(find_java())
    if target.startswith("local"):
        # Java looks for the machine's own name and address before it reads any setting.
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        # Otherwise Spark's Python processes run the python3 of the PATH, not that of this virtual environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _driver_megabytes() -> int:
    """A quarter of the memory, between one and four gigabytes."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    except (OSError, ValueError):
        return 1024
    return min(max(memory // 4, 1024), 4096)


@cache
def _temporary_directory() -> str:
    """Removed when this process ends, and by no process that it forks."""
    directory = tempfile.mkdtemp(prefix="lakelog-warehouse-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory
