"""Every verb does what plain Spark does to the same rows. ``LAKELOG_VERBS_SEED`` makes up other tables and steps."""

import os
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakelog import Lake
from lakelog.log.pruning.predicate import Everything
from lakelog.log.snapshot.snapshot import Snapshot
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants
from tests.spark.beside_spark import run

SEED = os.environ.get("LAKELOG_VERBS_SEED", "0")
STEPS = int(os.environ.get("LAKELOG_VERBS_STEPS", "18"))


@pytest.mark.slow
def test_every_verb_does_what_plain_spark_does(
    spark: SparkSession, lake: Lake, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run(spark, lake, f"{SEED} {place.backend}", STEPS)
    said = f"{outcome.steps} steps: {outcome.compared} compared, {outcome.failed} failed, {outcome.refused} refused"
    with capsys.disabled():
        print(f"\n{place.backend}, {said}")
    assert not outcome.findings, "\n\n".join(outcome.findings)
    assert outcome.compared > outcome.failed + outcome.refused, said
    check_invariants(lake)


def test_pruning_that_loses_a_file_is_found(spark: SparkSession, local: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Snapshot.files

    def forgetful(snapshot: Snapshot, predicate: Any = None, **options: Any) -> Any:
        if predicate is None or isinstance(predicate, Everything):
            return files(snapshot, **options)
        found = files(snapshot, predicate, **options)
        return found.slice(0, max(found.num_rows - 1, 0))

    monkeypatch.setattr(Snapshot, "files", forgetful)
    assert run(spark, local, "sabotage", 12).findings
