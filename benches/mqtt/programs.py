"""Clients that are not in Python: Mosquitto's programs, and a client in C of negligible cost (``peer.c``)."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable

from benches.mqtt.load import SIZE, UNTOLD, WINDOW, Report, feed

LATE = 0.5
"""Seconds for a program to subscribe, because it does not report that it has."""


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _child(words: list[str], count: int, lines: bytes | None = None) -> Report:
    """Runs a program that does all the work; its start is included."""
    start, cpu = time.perf_counter(), _children_cpu()
    status: int = subprocess.run(
        words, stdout=subprocess.PIPE, timeout=300, check=False, input=lines
    ).returncode
    if status:
        raise RuntimeError(f"{words[0]} ended with status {status}")
    rate = count / (time.perf_counter() - start)
    return {"rate": rate, "cpu": (_children_cpu() - cpu) / count * 1e6}


def mosquitto_publish(port: int, topic: str, count: int, qos: int) -> Report:
    words = [os.environ["MOSQUITTO_PUB"], "-V", "5", "-p", str(port), "-q", str(qos), "-t", topic, "-l"]
    return _child(words, count, (b"x" * SIZE + b"\n") * count)


def mosquitto_receive(port: int, topic: str, count: int, qos: int) -> Report:
    name = f"{topic}/{count}/{SIZE}"
    words = [os.environ["MOSQUITTO_SUB"], "-V", "5", "-p", str(port), "-q", str(qos), "-t", name]
    words += ["-D", "connect", "receive-maximum", str(UNTOLD), "-C", str(count)]
    threading.Timer(LATE, feed, (port, name, count, qos)).start()
    report = _child(words, count)
    seconds = count / report["rate"] - (0 if topic == "blast" else LATE)
    return report | {"rate": count / seconds}


def c_publish(port: int, topic: str, count: int, qos: int, window: int = WINDOW) -> Report:
    """The rate of the broker with a client of negligible cost."""
    return _peer("publish", [str(port), topic, str(count), str(SIZE), str(qos), str(window)], count)


def c_one(port: int, topic: str, count: int, qos: int) -> Report:
    return c_publish(port, topic, count, qos, 1)


def c_receive(port: int, topic: str, count: int, qos: int) -> Report:
    """From one publisher to one subscriber, timed from its first message to its last."""
    name = f"{topic}/{count}/{SIZE}"
    return _peer(
        "subscribe", [str(port), name, str(count), str(qos)], count, lambda: feed(port, name, count, qos)
    )


def _peer(role: str, words: list[str], count: int, when_ready: Callable[[], None] | None = None) -> Report:
    cpu = _children_cpu()
    command = [os.environ["MQTT_PEER"], role, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if when_ready:
            assert process.stdout.readline() == "ready\n"
            when_ready()
        *came, seconds = process.stdout.read().split()
    if came and int(came[0]) != count:
        raise RuntimeError(f"{came[0]} of {count} messages came")
    return {"rate": count / float(seconds), "cpu": (_children_cpu() - cpu) / count * 1e6}
