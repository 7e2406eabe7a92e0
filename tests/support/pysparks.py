"""Versions of PySpark, each in processes of its own: the one of the environment, and others beside it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .scripts import BROKERS, run_script

INSTALLED = "4.3"
"""The line of the PySpark in the environment."""
AVRO = {"4.3": ("2.13", "4.2.0"), "4.0": ("2.13", "4.0.2"), "3.5": ("2.12", "3.5.9")}
"""Scala and version of the jar with ``to_avro`` for each line. From 4.0 on what encodes is part of Spark
itself, so that the jar may be of another version. Not all are published."""


@functools.cache
def home(line: str) -> Path:
    """The folder of a PySpark that is not the one of the environment."""
    environment = {**os.environ, "PYTHON": sys.executable}
    script = str(BROKERS / "ensure-pyspark")
    return Path(run_script(script, line, timeout=600, environment=environment).split()[-1])


@functools.cache
def spark_avro(line: str) -> str:
    """The jar with Spark's ``to_avro``."""
    return run_script(str(BROKERS / "ensure-spark-avro"), *AVRO[line], timeout=600).split()[-1]


def environment(line: str) -> dict[str, str]:
    """The variables of processes that use a version of PySpark, drivers and workers."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    variables = {
        name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")
    }
    if line == INSTALLED:
        return variables | python
    folder = home(line)
    paths = [folder, *(folder / "lib").glob("py4j-*.zip")]
    beside = {"SPARK_HOME": str(folder / "deps"), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return variables | python | beside


def run(line: str, *command: Any, timeout: float = 240) -> Any:
    """Runs a script with a version of PySpark; returns what it printed last, as JSON."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment(line),
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])
