"""What the tests of the mirror look at: its files, and what another writer would leave there."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakelog import Dataset
from lakelog.actions import from_json
from tests.contract.samples import add, stats


def log_of(dataset: Dataset) -> Path:
    return Path(dataset.location) / "_delta_log"


def file_of(dataset: Dataset, version: int) -> Path:
    return log_of(dataset) / f"{version:020}.json"


def versions(dataset: Dataset) -> list[int]:
    return sorted(int(file.stem) for file in log_of(dataset).glob("*.json"))


def actions(dataset: Dataset, version: int) -> list[Any]:
    return [from_json(line) for line in file_of(dataset, version).read_text().splitlines()]


def foreign(version: int, engine: str = "Apache-Spark/4.0.0 Delta-Lake/4.0.0") -> bytes:
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": engine, "txnId": "x"}}
    if engine == "Lakelog":
        info["commitInfo"]["lakelog"] = "1"
    file = add(f"foreign-{version}.parquet", stats=stats(3, id=(1, 3)))
    return f"{json.dumps(info)}\n{file.to_json()}\n".encode()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def run_together(tasks: list[Callable[[], Any]]) -> None:
    errors: list[BaseException] = []

    def run(task: Callable[[], Any]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
