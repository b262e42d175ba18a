"""Spark in a process of its own, with a JVM of its own: ``python -m bench.in_spark``, started by a subject."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def in_spark(module: str, config: Mapping[str, str], *, packages: Path | None = None, **arguments: Any) -> Any:
    """What ``run(spark, **arguments)`` of a module answers in a new process. Arguments and answer travel as JSON.

    With ``packages``, a folder of Python packages, the Spark in it is used instead of the installed one.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as answer:
        command = [sys.executable, "-m", "bench.in_spark", answer.name, module, json.dumps(config)]
        command.append(json.dumps(arguments))
        environment = os.environ if packages is None else _environment(packages)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            # Java and Spark have much to say, which matters now only.
            error = subprocess.CalledProcessError(done.returncode, command[:5], stderr=done.stderr)
            error.add_note(done.stderr)
            raise error
        return json.loads(Path(answer.name).read_text())


def _environment(packages: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | {"PYTHONPATH": path}


def _main(answer: str, module: str, config: str, arguments: str) -> None:
    from lakelog.spark import session

    spark = session("lakelog-bench", config=json.loads(config))
    try:
        found = importlib.import_module(module).run(spark, **json.loads(arguments))
    finally:
        spark.stop()
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
