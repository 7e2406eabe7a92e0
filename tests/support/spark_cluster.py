"""A standalone cluster of Spark: the master and two workers of the installed PySpark."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from .scripts import free_port
from .waiting import eventually

HOME = Path(pyspark.__file__).parent


@contextlib.contextmanager
def standalone(folder: Path, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """The URL of a master, which has a worker with one core on each of ``hosts``."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    with contextlib.ExitStack() as running:

        def start(name: str, host: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            kind = name.split("-")[0]
            command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*command, "--host", host, "--webui-port", "0", *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            running.callback(stop, process)
            return log

        master = start("master.Master", "127.0.0.1", "--port", str(port))
        for number, host in enumerate(hosts):
            resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            start(f"worker.Worker-{number}", host, *resources, url)
        try:
            eventually(lambda: master.read_text().count("Registering worker") == len(hosts), 240)
        except AssertionError:
            logs = "".join(log.read_text() for log in sorted(folder.glob("*.log")))
            raise RuntimeError(f"the cluster did not start:\n{logs}") from None
        yield url


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a part of a cluster; a worker ends its executors."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(60)
