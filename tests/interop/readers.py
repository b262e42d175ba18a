"""Readers of Delta tables that are not ours: the rows that each finds in a directory.

``where`` is a condition in SQL that all of them take: comparisons, ``IS NULL``, ``IN``, ``AND``, ``OR``, ``NOT``.
"""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

Row = dict[str, Any]


def rows_by_delta_rs(location: str | Path, version: int | None = None, where: str | None = None) -> list[Row]:
    """Through DataFusion, which prunes by statistics."""
    deltalake = pytest.importorskip("deltalake")
    table = deltalake.DeltaTable(str(location), version=version)
    query = deltalake.QueryBuilder().register("t", table)
    batches = query.execute(f"SELECT * FROM t WHERE {where or 'true'}").read_all()
    return _arrow_rows(batches)


def rows_by_pyarrow(location: str | Path, version: int | None = None, where: Any = None) -> list[Row]:
    """Through delta-rs' dataset for pyarrow, which prunes by statistics, too. ``where`` is pyarrow's expression."""
    deltalake = pytest.importorskip("deltalake")
    dataset = deltalake.DeltaTable(str(location), version=version).to_pyarrow_dataset()
    return _arrow_rows(dataset.to_table(filter=where))


def rows_by_duckdb(location: str | Path, version: int | None = None, where: str | None = None) -> list[Row]:
    at = "" if version is None else f", version => {version}"
    found = _duckdb().execute(f"FROM delta_scan(?{at}) WHERE {where or 'true'}", [str(location)])
    return _arrow_rows(found.to_arrow_table())


@cache
def _duckdb() -> Any:
    """A DuckDB with its extension for Delta, out of the package that brings it, so without a network."""
    duckdb = pytest.importorskip("duckdb")
    package = pytest.importorskip("duckdb_extension_delta")
    extensions = Path(package.__file__).parent / "extensions"
    [extension] = extensions.glob(f"v{duckdb.__version__}/delta.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def rows_by_polars(location: str | Path, version: int | None = None, where: str | None = None) -> list[Row]:
    polars = pytest.importorskip("polars")
    frame = polars.scan_delta(str(location), version=version)
    if where is not None:
        frame = frame.filter(polars.sql_expr(where))
    return _arrow_rows(frame.collect().to_arrow())


def rows_by_delta_spark(location: str | Path, version: int | None = None, where: str | None = None) -> list[Row]:
    """Where its jars can be had: ``LAKELOG_TEST_DELTA_JARS`` names their folder, ``LAKELOG_TEST_DELTA_PYTHON`` a Python
    with the PySpark that they are made for."""
    if where is not None:
        # In Spark's words.
        where = where.replace("TIMESTAMPTZ", "TIMESTAMP").replace("\\", "\\\\")
    answer = delta_spark()({"location": str(location), "version": version, "where": where})
    file = Path(answer["rows"])
    with pa.memory_map(str(file)) as source:
        rows = pa.ipc.open_file(source).read_all().to_pylist()
    file.unlink()
    return rows  # type: ignore[no-any-return]


@cache
def delta_spark() -> Callable[[dict[str, Any] | None], dict[str, Any]]:
    """Asks the process that has it. The test is skipped, and says so, where there is none."""
    jars = os.environ.get("LAKELOG_TEST_DELTA_JARS")
    if jars is None:
        pytest.skip("delta-spark was not compared with: LAKELOG_TEST_DELTA_JARS names no folder with its jars")
    python = os.environ.get("LAKELOG_TEST_DELTA_PYTHON", sys.executable)
    script = Path(__file__).with_name("delta_spark.py")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    process = subprocess.Popen(
        [python, str(script), jars],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    atexit.register(process.kill)
    assert process.stdin is not None
    assert process.stdout is not None
    sender, receiver = process.stdin, process.stdout

    def ask(question: dict[str, Any] | None) -> dict[str, Any]:
        if question is not None:
            sender.write(json.dumps(question) + "\n")
            sender.flush()
        found: dict[str, Any] = json.loads(next(line for line in receiver if line.startswith("{")))
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    assert ask(None) == {"ready": True}
    return ask


READERS: dict[str, Any] = {
    "delta-rs": rows_by_delta_rs,
    "duckdb": rows_by_duckdb,
    "polars": rows_by_polars,
    "delta-spark": rows_by_delta_spark,
}


def _arrow_rows(table: Any) -> list[Row]:
    return pa.table(table).to_pylist()
