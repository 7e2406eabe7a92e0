"""``python -m support.jvm``: keeps the classes that each Spark loads in an archive of the JVM. With it Spark
starts in half the time."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / ".venv" / ".spark.jsa"
FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVMs of the tests compile once and quickly: they end before the optimising compiler, which takes a third of
the time of a Pulsar, has paid for itself."""

WORK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(0, 10, 1, 2).selectExpr("cast(id as string) value", "id % 3 part").createTempView("numbers")
spark.sql("select part, count(value) from numbers group by part order by part").collect()
spark.stop()
"""


def environment() -> dict[str, str]:
    """The variables of the JVMs that tests start."""
    variables = {"JAVA_TOOL_OPTIONS": FLAGS}
    if ARCHIVE.exists():
        # Not for all: a JVM of other classes would say that it cannot use it.
        archive = f"-XX:SharedArchiveFile={ARCHIVE}"
        variables |= {"SPARK_SUBMIT_OPTS": archive, "SPARK_DAEMON_JAVA_OPTS": archive}
    return variables


def main() -> None:
    from forebay.spark import java

    ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        java.ensure(folder)
        variables = environment() | {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={ARCHIVE}"}
        done = subprocess.run(
            [sys.executable, "-c", WORK],
            env={**os.environ, **variables},
            cwd=folder,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    if not ARCHIVE.exists():
        print(f"{done.stdout}\nThis JVM keeps no archive: the tests of Spark start more slowly.")


if __name__ == "__main__":
    main()
