"""Spark's Declarative Pipelines, where a table of Lakelog is a sink."""

import shutil
from pathlib import Path

import pyspark
import pytest

import lakelog
from tests.fixtures.connect import run
from tests.invariants import check_invariants
from tests.parquet import read

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative_pipeline"
COMMAND = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"


@pytest.mark.slow
def test_the_example_fills_its_table(tmp_path: Path) -> None:
    project, output = tmp_path / "project", tmp_path / "output"
    shutil.copytree(EXAMPLE, project)
    specification = project / "spark-pipeline.yml"
    text = specification.read_text()
    assert "/tmp/lakelog-pipeline/" in text
    specification.write_text(text.replace("/tmp/lakelog-pipeline/", f"{output}/"))
    output.mkdir()
    assert "Run is COMPLETED" in run(str(COMMAND), "run", directory=project)
    with lakelog.connect(f"sqlite:///{output}/catalog.db") as lake:
        dataset = lake.dataset("ticks")
        values = read(dataset.snapshot(), dataset.location).column("value").to_pylist()
        assert sorted(values) == list(range(100))
        check_invariants(lake)
