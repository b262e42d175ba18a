"""One Spark for all tests of this folder. It starts with the first test that asks for it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import lakelog.spark
from tests.fixtures.door import Door
from tests.fixtures.lakes import Place


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = lakelog.spark.session(
        "lakelog-tests",
        master="local[2]",
        config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"},
    )
    yield session
    session.stop()


@pytest.fixture
def door(spark: SparkSession, place: Place) -> Door:
    """The test's catalog, through Spark's own door."""
    return Door(spark, place)
