"""One Spark for all: the newest for which delta-spark and Iceberg have jars, and on which Lakelog runs as well.

pip brings that Spark, Spark brings the jars by their names, both from wherever the machine's settings say that
packages come from. They stay in ``build/bench-spark``. Who cannot have them measures Lakelog and Spark alone, on the
Spark that is installed.
"""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.in_spark import in_spark
from bench.lab import Lab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_SPARK, ICEBERG = "delta-spark", "Iceberg on Spark"
ICEBERG_CATALOG = "iceberg"

_JAVA_FAILED = 'Exception in thread "main"'
_HOME = Path("build", "bench-spark")
_PYSPARK = "pyspark==4.1.*"
_JARS = {
    DELTA_SPARK: "io.delta:delta-spark_4.1_2.13:4.4.0",
    ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
_BROUGHT = "org.slf4j:slf4j-api,org.xerial.snappy:snappy-java"
"""Spark has them. Where Maven has left their descriptions without their jars, Spark would look no further."""
_SETTINGS = {
    DELTA_SPARK: {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Of its log, for which 50 tasks are too many here.
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    ICEBERG: {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{ICEBERG_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{ICEBERG_CATALOG}.type": "hadoop",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSpark:
    """A Spark in which systems can be measured side by side."""

    version: str
    peers: tuple[str, ...]
    packages: Path | None
    """A folder of Python packages that come before the installed ones."""
    problems: tuple[tuple[str, str], ...]
    """The peers that could not be had, and why."""

    @property
    def note(self) -> str:
        return f"Spark {self.version}"

    def run(self, module: str, directory: Path, config: dict[str, str], **arguments: Any) -> Any:
        """What ``run(spark, peers=…, directory=…, …)`` of a module answers, as ``in_spark`` does."""
        config = {
            **_config(self.peers),
            f"spark.sql.catalog.{ICEBERG_CATALOG}.warehouse": f"file://{directory / 'iceberg'}",
            **config,
        }
        return in_spark(
            module, config, packages=self.packages, peers=list(self.peers), directory=str(directory), **arguments
        )


def one_spark(lab: Lab) -> OneSpark:
    """The Spark of this run, with as many peers as can be had."""
    if "one spark" not in lab.kept:
        lab.kept["one spark"] = _find()
    return lab.kept["one spark"]  # type: ignore[return-value]


def run(spark: "SparkSession") -> str:
    return spark.version


def _find() -> OneSpark:
    packages = (_HOME / "python").resolve()
    problems = {}
    versions = {}
    try:
        _install(packages)
    except subprocess.CalledProcessError as error:
        problems = dict.fromkeys(_JARS, f"no {_PYSPARK}: {_reason(error.stderr)}")
    for peer in [each for each in _JARS if each not in problems]:
        try:
            versions[peer] = in_spark(__name__, _config([peer]), packages=packages)
        except subprocess.CalledProcessError as error:
            problems[peer] = f"no {_JARS[peer]}: {_reason(error.stderr)}"
    return OneSpark(
        version=next(iter(versions.values())) if versions else version("pyspark"),
        peers=tuple(peer for peer in _JARS if peer in versions),
        packages=packages if versions else None,
        problems=tuple(problems.items()),
    )


def _install(packages: Path) -> None:
    if any(found.name == "pyspark" for found in distributions(path=[str(packages)])):
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages), _PYSPARK]
    subprocess.run(command, capture_output=True, text=True, check=True)


def _config(peers: Iterable[str]) -> dict[str, str]:
    peers = list(peers)
    config: dict[str, str] = {}
    for key, value in (setting for peer in peers for setting in _SETTINGS[peer].items()):
        config[key] = f"{config[key]},{value}" if key in config else value
    if peers:
        config["spark.jars.packages"] = ",".join(_JARS[peer] for peer in peers)
        config["spark.jars.excludes"] = _BROUGHT
        config["spark.jars.ivy"] = str((_HOME / "jars").resolve())
    return config


def _reason(text: str) -> str:
    """Of all that pip, Java and Python say, what one wants to know."""
    lines = text.strip().splitlines() or ["no reason given"]
    java = [line.removeprefix(_JAVA_FAILED) for line in lines if line.startswith(_JAVA_FAILED)]
    return (java or lines)[-1].strip()[:200]
