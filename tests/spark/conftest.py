"""What tests of this folder share beside the one Spark that all tests have."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakelog
import lakelog.spark
from lakelog import Lake
from tests.fixtures.door import Door
from tests.fixtures.footers import AS_THE_WRITER_DOES, SparkWrite
from tests.fixtures.lakes import Place


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Lake]:
    """A lake on SQLite, where a test is about Spark and not about the catalog."""
    with lakelog.connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def door(spark: SparkSession, place: Place) -> Door:
    """The test's catalog, through Spark's own door."""
    return Door(spark, place)


@pytest.fixture
def spark_write(spark: SparkSession, tmp_path: Path) -> SparkWrite:
    """Writes a query's rows as Lakelog's writer does, and returns the files."""

    def write(query: str, **options: Any) -> list[Path]:
        target = tmp_path / uuid.uuid4().hex
        spark.sql(query).coalesce(1).write.options(**AS_THE_WRITER_DOES | options).parquet(f"file://{target}")
        return sorted(target.glob("*.parquet"))

    return write
