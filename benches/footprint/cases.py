"""Cases of the footprint. This module imports no client: each process has one alone."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches import ROOT
from benches.clock import MIB, PeakMemory

Report = dict[str, float]
IDLE = 5.0


def importing(module: str, times: int) -> Report:
    """Interpreters that start, import ``module`` and end."""
    words = [sys.executable, "-c", f"import {module}"]
    # The first one writes the compiled files.
    subprocess.run(words, check=True)
    began = time.perf_counter()
    for _ in range(times):
        subprocess.run(words, check=True)
    taken = (time.perf_counter() - began) / times
    return {"rate": 1 / taken, "milliseconds": taken * 1e3}


# ------------------------------------------------------------------------------------------- sizes


def _size(files: Iterator[bytes]) -> Report:
    """MiB of the files, and deflated, as in a wheel."""
    plain = packed = 0
    for content in files:
        plain += len(content)
        packed += len(zlib.compress(content, 6))
    return {"installed": plain / MIB, "packed": packed / MIB}


def size_of_distribution(name: str) -> Report:
    """The files of an installed distribution, without those of its dependencies."""
    files = [Path(str(file.locate())) for file in importlib.metadata.files(name) or ()]
    return _size(file.read_bytes() for file in files if file.suffix != ".pyc" and file.is_file())


def size_of_checkout() -> Report:
    """The package with the engine of this environment."""
    package = importlib.import_module("forebay").__file__
    assert package
    files = Path(package).parent.rglob("*")
    return _size(file.read_bytes() for file in files if file.suffix != ".pyc" and file.is_file())


def wheels() -> list[Path]:
    """The wheels that ``make wheel`` has built, the newest last."""
    return sorted((ROOT / "dist").glob("forebay-*.whl"), key=lambda file: file.stat().st_mtime)


def size_of_wheel() -> Report:
    with zipfile.ZipFile(wheels()[-1]) as wheel:
        return _size(wheel.read(name) for name in wheel.namelist())


# ------------------------------------------------------------------------------------------- idle
# clients


def _idle() -> Report:
    """Resident set in MiB, and CPU in milliseconds per second."""
    began = time.process_time()
    time.sleep(IDLE)
    return {"rss": PeakMemory.now() / MIB, "idle": (time.process_time() - began) * 1e3 / IDLE}


async def client_forebay(url: str) -> Report:
    forebay = importlib.import_module("forebay")
    async with forebay.connect(url) as client, client.producer("idle") as producer:
        await producer.send(b"")
        return await asyncio.to_thread(_idle)


def client_pulsar(url: str) -> Report:
    pulsar: Any = importlib.import_module("pulsar")
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.create_producer("idle").send(b"")
    return _idle()


def client_paho(url: str) -> Report:
    mqtt: Any = importlib.import_module("paho.mqtt.client")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", int(url.rpartition(":")[2]))
    client.loop_start()
    client.publish("idle", b"", qos=1).wait_for_publish(10)
    return _idle()
