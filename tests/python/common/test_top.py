"""``forebay top``: figures, terminals of all widths, and brokers that go away."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay import blocking
from forebay.commands import top
from forebay.commands._shared import snapshot
from forebay.commands._shared.prometheus import parsed

from support.commands import Commands
from support.scripts import free_port
from support.waiting import PATIENCE


@pytest.fixture
def broker() -> Iterator[forebay.Broker]:
    with forebay.Broker(http_port=0, tubemq_port=0, mqtt_port=0) as broker:
        yield broker


@contextlib.contextmanager
def traffic(broker: forebay.Broker) -> Iterator[None]:
    """A producer that sends without end, to a topic with a subscription that takes nothing."""
    flowing, end = threading.Event(), threading.Event()

    def run() -> None:
        with (
            blocking.connect(broker.url) as client,
            client.consumer("orders", "billing"),
            client.producer("orders") as producer,
        ):
            while not end.wait(0.01):
                producer.send(b"x" * 100)
                flowing.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert flowing.wait(PATIENCE), "nothing is sent"
        yield
    finally:
        end.set()
        thread.join()


def test_rates_and_backlogs(broker: forebay.Broker) -> None:
    with traffic(broker):
        command = Commands(str(broker.http_url), "top", "-i", "500ms", "--once")
        found = command.json()
        text = command()
    (pulsar,) = [one for one in found["protocols"] if one["protocol"] == "pulsar"]
    assert pulsar["received_per_second"] > 1
    assert pulsar["received_bytes_per_second"] > 100
    assert pulsar["connections"] == 1
    (topic,) = found["topics"]
    assert (topic["topic"], topic["producers"]) == ("persistent://public/default/orders", 1)
    (subscription,) = topic["subscriptions"]
    assert (subscription["subscription"], subscription["consumers"]) == ("billing", 1)
    assert subscription["backlog"] > 0
    assert found["broker"]["version"] == f"forebay {forebay.__version__}"
    assert found["broker"]["store_writable"] == 1
    assert text.startswith(f"forebay {forebay.__version__}, up ")
    assert "\norders  billing " in text


def figures(*topics: str) -> dict[str, Any]:
    """The figures between two looks, in the second of which each topic has 10 messages more."""
    looks = []
    for count in (5, 15):
        lines = ['forebay_broker_connections{protocol="mqtt"} 3']
        for topic in topics:
            lines.append(f'forebay_topic_received_messages_total{{topic="{topic}"}} {count}')
            lines.append(f'forebay_subscription_backlog_entries{{topic="{topic}",subscription="s"}} {count}')
        looks.append(snapshot.taken(parsed("\n".join(lines).encode(), "")))
    looks[1].at = looks[0].at + 2
    return snapshot.changes(*looks)


def test_what_is_between_two_looks() -> None:
    found = figures("a")
    assert found["topics"][0]["received_per_second"] == 5
    assert found["topics"][0]["subscriptions"][0]["backlog"] == 15
    # A broker that was started again counts from 0.
    before, after = snapshot.Snapshot(0), snapshot.Snapshot(1)
    before.topics["t"], after.topics["t"] = snapshot.Topic(1000), snapshot.Topic(7)
    after.topics["new"] = snapshot.Topic(3)
    rates = {one["topic"]: one["received_per_second"] for one in snapshot.changes(before, after)["topics"]}
    assert rates == {"t": 7, "new": 3}


def test_partitions_of_the_real_broker_are_one_topic() -> None:
    text = b"""
pulsar_in_messages_total{topic="persistent://a/b/c-partition-0"} 1
pulsar_in_messages_total{topic="persistent://a/b/c-partition-11"} 2
pulsar_subscription_back_log{topic="persistent://a/b/c-partition-0",subscription="s"} 3
pulsar_subscription_back_log{topic="persistent://a/b/c-partition-11",subscription="s"} 4
pulsar_out_bytes_total NaN
pulsar_version_info{version="4.0"} 1
"""
    found = snapshot.taken(parsed(text, ""))
    assert found.topics == {"persistent://a/b/c": snapshot.Topic(3)}
    assert found.subscriptions[("persistent://a/b/c", "s")].backlog == 7
    assert (found.protocols["pulsar"].received, found.protocols["pulsar"].sent_bytes) == (3, 0)
    assert found.broker["version"] == "pulsar 4.0"


@pytest.mark.parametrize("width", [20, 40, 69, 70, 200])
@pytest.mark.parametrize("height", [5, 24])
def test_the_screen_fits(width: int, height: int) -> None:
    from rich.console import Console

    found = figures(*(f"persistent://public/default/{'topic' * 9}{number}\x1b" for number in range(99)))
    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    console.print(top._screen(found, "", width, height))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= max(height, 6)
    assert "\x1b" not in "".join(lines)
    shown = lines[len(lines) - 2]
    assert shown.startswith("topic"[: 2 if width < 36 else 5])


def test_a_service_without_figures_is_refused(broker: forebay.Broker) -> None:
    assert "over HTTP" in Commands(broker.url).misused("top", "--once")
    assert "connect_failed" in Commands("http://127.0.0.1:1").refused("top", "--once")
    assert "--interval" in Commands(str(broker.http_url)).misused("top", "-i", "soon")
    assert "at least 100ms" in Commands(str(broker.http_url)).misused("top", "-i", "1ms")


class Terminal:
    """``forebay top`` on a terminal."""

    def __init__(self, *words: str, rows: int = 20, columns: int = 60, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        unset = ("LINES", "COLUMNS", "NO_COLOR")
        env = {name: value for name, value in os.environ.items() if name not in unset}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "forebay", "top", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "TERM": "xterm", **environment},
            start_new_session=True,
            # Ignored by whatever a shell has started in the background, and so by these tests.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(slave)
        self.text = ""

    def until(self, text: str) -> None:
        """Reads until the text has come."""
        limit = time.monotonic() + 120
        while text not in self.text:
            assert time.monotonic() < limit, self.text
            if select.select([self._master], [], [], 1)[0]:
                try:
                    self.text += os.read(self._master, 65536).decode(errors="replace")
                except OSError:
                    break
        assert text in self.text, self.text

    def end(self) -> int:
        """Ends it as Ctrl-C does; its exit status."""
        self.process.send_signal(signal.SIGINT)
        try:
            # The end of the screen of its own.
            self.until("\x1b[?1049l")
            return self.process.wait(60)
        finally:
            os.close(self._master)


def test_it_fills_a_terminal_and_ends_with_ctrl_c(broker: forebay.Broker) -> None:
    with traffic(broker):
        terminal = Terminal("-u", str(broker.http_url), "-i", "200ms")
        terminal.until("billing")
        terminal.until("Ctrl-C ends")
        assert terminal.end() == 130
    assert "\x1b[?1049h" in terminal.text
    assert "Traceback" not in terminal.text


def test_it_waits_for_a_broker_that_is_gone() -> None:
    port = free_port()
    with forebay.Broker(http_port=port) as broker:
        url = str(broker.http_url)
        terminal = Terminal("-u", url, "-i", "200ms", columns=200)
        terminal.until("Ctrl-C ends")
    terminal.until("no figures since")
    with forebay.Broker(http_port=port):
        terminal.text = ""
        terminal.until("Ctrl-C ends")
        assert terminal.end() == 130


def test_without_rich_it_says_what_to_install(broker: forebay.Broker, tmp_path: Any) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError\n")
    terminal = Terminal("-u", str(broker.http_url), PYTHONPATH=str(tmp_path))
    terminal.until("pip install 'forebay[cli]'")
    assert terminal.process.wait(60) == 1
    words = ("top", "-u", str(broker.http_url), "--once", "-i", "100ms", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "forebay", *words],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout)["broker"]
