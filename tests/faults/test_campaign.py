"""A short part of the campaign that `./dev faults` runs for as long as one likes, over each database."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.outage import try_outage
from tests.campaign.power import try_power
from tests.campaign.shim import compile_shim

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_a_short_campaign_loses_nothing_and_tells_nothing_wrongly(tmp_path: Path) -> None:
    arguments = [
        "--minutes",
        "0",
        "--seconds",
        "6",
        "--seed",
        "7",
        "--inputs",
        "400",
        "--losses",
        "30",
        "--soak",
        "1000",
    ]
    command = [
        sys.executable,
        "-m",
        "tests.campaign",
        *arguments,
        "--output",
        str(tmp_path),
        "--cache",
        str(tmp_path / "cache"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    found = json.loads((tmp_path / "faults.json").read_text())
    assert set(found["databases"]) == {"sqlite", "duckdb", "postgres"}
    assert all(each["acknowledged"] > 20 and each["reads"] > 20 for each in found["databases"].values())
    assert sum(found["faults"].values()) > 30
    # Without the shim, pgbouncer and disks there are fewer of them.
    assert len(found["faults"]) > (5 if found["lacks"] else 15)
    assert all(each["inputs"] > 100 and each["soak commits"] for each in found["databases"].values())
    assert sum(found["inputs"].values()) == 400
    assert found["findings"] == found["unclear"] == []


@pytest.mark.slow
def test_a_loss_of_power_is_seen_where_nothing_is_promised(tmp_path: Path) -> None:
    """The proof that the check can fail: relaxed durability syncs nothing of the catalog and of data."""
    shim = compile_shim(tmp_path)
    if shim is None:
        pytest.skip("there is no C compiler, or no Linux")
    found = try_power(tmp_path / "power", shim, "sqlite", 3, commits=10, losses=10, durability="relaxed")
    assert found.losses == 10
    assert any("is not what was written" in each for each in found.findings), found.findings
    assert not any("the record lacks" in each for each in found.findings), found.findings


@pytest.mark.slow
def test_a_mirror_recovers_from_an_outage_of_a_thousand_commits(tmp_path: Path) -> None:
    shim = compile_shim(tmp_path)
    if shim is None:
        pytest.skip("there is no C compiler, or no Linux")
    place = tmp_path / "outage"
    found = try_outage(place, shim, f"sqlite:///{place}/catalog.db", 1100, mend=True)
    assert found.findings == []
    assert (found.commits, found.failures > 1024) == (1100, True)
