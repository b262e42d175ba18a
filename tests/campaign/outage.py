"""A mirror that fails for thousands of commits, and is whole soon after it is mended.

The work runs in a process of its own under the shim, as that of a loss of power does.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from lakelog import Dataset, Lake, LakelogError, SqlTxnLogWriter, connect
from lakelog.actions import AddFile
from tests.campaign import shim
from tests.campaign.shim import Control, Operations, Rule
from tests.contract.samples import SCHEMA

_SOON = 75.0
"""Seconds in which the mirror must have all that was committed: the longest pause between two attempts, and some."""


@dataclass(slots=True, kw_only=True)
class OutageReport:
    commits: int = 0
    """Acknowledged while the mirror failed."""
    failures: int = 0
    """Of the mirror."""
    seconds: float = 0.0
    """From the end of the outage until the mirror had all."""
    findings: list[str] = field(default_factory=list)


def try_outage(directory: Path, library: Path, url: str, commits: int, *, mend: bool = False) -> OutageReport:
    """So many commits to a new table of a catalog whose mirror fails all the time.

    The mirror must recover by itself, or with ``mend`` when it is asked to.
    """
    directory.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "tests.campaign.outage",
        str(directory),
        url,
        str(commits),
        "mend" if mend else "wait",
    ]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        return OutageReport(findings=[f"the work during an outage failed: {done.stderr[-2000:]}"])
    return OutageReport(**json.loads(done.stdout.splitlines()[-1]))


def _main(directory: str, url: str, commits: str, how: str) -> None:
    place = Path(directory)
    report = OutageReport()
    with Control(place / "control") as control:
        shim.attach(control.path)
        with connect(url, root=place / "lake", mirror="sync") as lake:
            _suffer(lake, control, int(commits), report, mend=how == "mend")
    print(json.dumps({name: getattr(report, name) for name in report.__slots__}))


def _suffer(lake: Lake, control: Control, commits: int, report: OutageReport, *, mend: bool) -> None:
    events = lake.create_dataset("events", SCHEMA)
    writer = SqlTxnLogWriter(lake)
    control.arm(Rule(operations=Operations.WRITE | Operations.CREATE, path="/_delta_log", times=1 << 30))
    for number in range(commits):
        Path(events.location, f"{number}.parquet").write_bytes(b"x")
        file = AddFile(path=f"{number}.parquet", size=1, modification_time=0, stats='{"numRecords":1}')
        try:
            version = writer.append(events.id, [file]).version
        except Exception as error:
            # A commit that stands raises nothing, whatever its mirror does.
            report.findings.append(f"commit {number + 1} of an outage: {type(error).__name__}: {error}"[:500])
            break
        if version != number + 1:
            report.findings.append(f"commit {number + 1} of an outage was told to be version {version}")
        report.commits += 1
    report.failures = control.disarm()
    before = events.mirror_status()
    if before.published >= report.commits:
        report.findings.append(f"nothing has failed in an outage: {before}")
    if mend:
        events.mirror()
    report.seconds = _recover(events)
    after = events.mirror_status()
    if (after.state, after.published, after.head) != ("published", report.commits, report.commits):
        report.findings.append(f"the mirror does not recover from an outage of {report.commits} commits: {after}")
    there = {int(path.stem) for path in Path(events.location, "_delta_log").glob("*.json") if path.stem.isdigit()}
    if missing := sorted(set(range(report.commits + 1)) - there):
        report.findings.append(f"versions {missing[:5]} are not in the mirror after an outage")
    report.findings += [f"check after an outage: {each}" for each in lake.check("events", deep=False).findings]


def _recover(events: Dataset) -> float:
    """Waits until all is published, by nobody's hands. Seconds."""
    began = time.monotonic()
    while time.monotonic() < began + _SOON:
        try:
            status = events.mirror_status()
        except LakelogError:
            continue
        if status.published == status.head:
            break
        time.sleep(0.05)
    return round(time.monotonic() - began, 2)


if __name__ == "__main__":
    _main(*sys.argv[1:])
