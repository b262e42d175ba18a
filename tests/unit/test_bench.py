"""What the benchmarks say of their measurements: ratios, aims, pages, pictures. No test is of a time."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench import command, results
from bench.__main__ import app
from bench.charts import Panel, picture
from bench.lab import QUICK, Lab
from bench.measure import Figure, Sample
from bench.peers import SUBJECTS, commits, planning, systems, writers
from bench.readings import LAKELOG, LIMIT, Goal, Reading, best_peer, limit_for, of_same_work, reached

TINY = replace(QUICK, rounds=1, commits=3, seconds=0.2, versions=100, patience=2)


def reading(system: str, median: float | None, **other: Any) -> Reading:
    sample = None if median is None else Sample((median / 2, median, median * 2))
    return Reading(**{"subject": "s", "what": "w", "unit": "ms", **other}, system=system, sample=sample)


GROUP = [
    reading(LAKELOG, 2.0, database="SQLite"),
    reading(LIMIT, 1.0, database="SQLite"),
    reading(LIMIT, 0.5, database="DuckDB"),
    reading("slow", 30.0),
    reading("fast", 20.0),
    reading("broken", None, note="it is locked"),
]


def test_better_is_less_time_or_more_commits() -> None:
    assert GROUP[0].times_better(GROUP[4]) == 10
    assert reading("a", 30.0, unit="/s").times_better(reading("b", 10.0, unit="/s")) == 3
    assert GROUP[0].times_better(GROUP[5]) is None


def test_the_best_peer_is_neither_lakelog_nor_the_limit() -> None:
    assert best_peer(GROUP) is GROUP[4]
    assert best_peer(GROUP[:3]) is None


def test_the_limit_is_the_one_on_the_same_database() -> None:
    assert limit_for(GROUP, GROUP[0]) is GROUP[1]
    assert limit_for(GROUP, reading(LAKELOG, 1.0, database="PostgreSQL")) is None
    everywhere = reading(LIMIT, 1.0)
    assert limit_for([everywhere], GROUP[0]) is everywhere


def test_only_the_same_work_is_compared() -> None:
    larger = reading("fast", 5.0, size=10)
    assert of_same_work([*GROUP, larger]) == [GROUP, [larger]]


def test_an_aim_is_reached_missed_or_not_measured() -> None:
    near, far = (
        Goal(subject="s", what="w", system="Lakelog on SQLite", over="fast", times=times) for times in (10.0, 11.0)
    )
    assert reached(near, GROUP) == 10
    assert results.short(GROUP, [near, far]) == [(far, 10)]
    assert reached(replace(near, over="absent"), GROUP) is None
    assert results.short(GROUP, [replace(far, over="absent")]) == []


def test_an_aim_may_compare_with_other_work_of_the_same_size() -> None:
    readings = [reading(LAKELOG, 3.0, what="grown", size=10), reading(LAKELOG, 2.0, what="new", size=10)]
    goal = Goal(subject="s", what="grown", system=LAKELOG, over=LAKELOG, over_what="new", times=0.5, size=10)
    assert reached(goal, readings) == pytest.approx(2 / 3)


def test_results_survive_on_disk_and_make_a_page(tmp_path: Path) -> None:
    run = results.about()
    results.save(tmp_path, "s", GROUP, run)
    loaded = results.load(tmp_path, "s")
    assert loaded == (GROUP, run)
    goal = Goal(subject="s", what="w", system="Lakelog on SQLite", over="fast", times=11)
    page = results.markdown(GROUP, [goal], run)
    assert "| Lakelog on SQLite | 2 ms | 1 to 4 | 10.0 × fast | 0.50 | ≥ 11 × fast: 10.0 | short |" in page
    assert "| broken | failed |" in page
    assert "it is locked" in page
    assert results.load(tmp_path, "absent") is None


def test_an_overview_has_one_line_for_the_same_work() -> None:
    assert results.matrix(GROUP).splitlines() == [
        "| | Lakelog | slow | fast | broken | the limit |",
        "|---|---|---|---|---|---|",
        "| w, ms | 2 (SQLite) | 30.0 | 20.0 | failed | 1 / 0.5 (SQLite, DuckDB) |",
    ]


def test_the_picture_is_drawn_on_logarithmic_axes() -> None:
    readings = [reading(system, float(size), size=size) for system in (LAKELOG, LIMIT) for size in (10, 100, 1_000)]
    drawn = ET.fromstring(picture([Panel("A & B", "files", readings)]))
    names = {"svg": "http://www.w3.org/2000/svg"}
    lines = [line.get("points", "") for line in drawn.iterfind(".//svg:polyline", names)]
    assert len(lines) == 2
    xs = [float(point.split(",")[0]) for point in lines[0].split()]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert any("A & B" in (text.text or "") for text in drawn.iterfind(".//svg:text", names))


def test_a_picture_leaves_out_what_could_not_be_measured() -> None:
    drawn = picture([Panel("t", "files", [reading(LAKELOG, 1.0, size=1), reading("broken", None, size=1)])])
    assert "broken" not in drawn


def test_results_of_single_subjects_make_one_page_and_picture(tmp_path: Path) -> None:
    aged = [reading(LAKELOG, 1.0, subject=commits.SUBJECT, what=commits.AGED, size=size) for size in (100, 1_000)]
    results.save(tmp_path, "commits", aged, results.about())
    command.draw(tmp_path)
    assert "## commits" in (tmp_path / command.PAGE).read_text()
    assert "as the table ages" in (tmp_path / command.PICTURE).read_text()


def test_an_unknown_subject_is_refused_with_those_there_are(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["comits", "--output", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "no such subject: comits" in done.output
    assert all(name in done.output for name in SUBJECTS)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def lab(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LAKELOG_TEST_POSTGRES", postgres_url)
    with Lab(TINY) as opened:
        yield opened


def test_commits_are_measured_for_every_system_that_is_there(lab: Lab) -> None:
    readings = commits.measure(lab)
    young = {each.name for each in readings if each.what == commits.YOUNG}
    assert young == {spot.name for spot in systems.spots(lab)}
    assert {"Lakelog on PostgreSQL", "the limit on SQLite", "delta-rs"} <= young
    assert all(each.sample is not None and each.sample.low > 0 for each in readings)


def test_processes_on_one_table_lose_nothing(lab: Lab) -> None:
    spot = systems.spots(lab, [LAKELOG], ["sqlite"])[0]
    total, slowest, _ = writers.race(lab, spot, 2, writers.ONE_TABLE)
    with spot.place.connect() as lake:
        assert lake.dataset("shared").version > 0
    assert (total.size, total.note, slowest.unit) == (2, "", "of mean")


def test_plans_keep_the_ten_files_that_were_asked_for(lab: Lab) -> None:
    for system, backend in ((LAKELOG, "postgres"), ("delta-rs", "")):
        with planning.planning(planning.grown(lab, system, backend, 200)) as plan:
            assert plan(100, planning.BY_NUMBER) == plan(100, planning.BY_PARTITION) == 10


def test_the_check_names_what_has_become_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(lab: Lab, backend: str) -> list[Figure]:
        one, other = Sample((1.0,)), Sample((10.0,))
        return [Figure(subject="x", backend=backend, what="commits", unit="/s", sample=one, limit=other)]

    monkeypatch.setattr(command, "LIMITS", {"one-file": measured})
    monkeypatch.setattr(command, "CHECKED", {"one-file": 0.2})
    assert command.check()[0] == "x, commits on sqlite: 0.10 of the limit, at least 0.2"
    monkeypatch.setattr(command, "CHECKED", {"one-file": 0.05})
    assert command.check() == []
