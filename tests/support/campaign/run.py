"""Processes of a campaign: the client, a neighbour that reads the broker's database, and what they are judged
by."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from support.campaign import ledger
from support.campaign.flows import (
    MQTT_FILTER,
    PROTOCOLS,
    PULSAR_PARTITIONED,
    PULSAR_TOPIC,
    QUICK,
    TUBEMQ_TOPIC,
    Receiver,
    connect,
    opened,
)
from support.campaign.ledger import HEADING, Line, account
from support.waiting import PATIENCE

TESTS = Path(__file__).parent.parent.parent

NEIGHBOUR = """
import pathlib, sqlite3, sys, time
times = 0
while True:
    # The broker makes the file.
    if pathlib.Path(sys.argv[1]).exists():
        database = sqlite3.connect(sys.argv[1], timeout=0)
        try:
            database.execute("SELECT count(*) FROM (SELECT 1 FROM entry LIMIT 1000)").fetchone()
            times += 1
            print(times, flush=True)
        except sqlite3.OperationalError:
            # Locked by a broker that recovers, or without tables yet.
            pass
        database.close()
    time.sleep(0.05)
"""


class ClientProcess:
    """The client of a campaign, to be killed and started again."""

    def __init__(self, folder: Path, urls: Mapping[str, str]) -> None:
        self.folder, self.urls = folder, dict(urls)
        self.process: subprocess.Popen[str] | None = None
        self.errors = folder / "client.log"

    @property
    def flows(self) -> list[str]:
        return [flow for protocol in self.urls for flow in PROTOCOLS[protocol].flows]

    @property
    def receivers(self) -> list[str]:
        return [name for protocol in self.urls for name in PROTOCOLS[protocol].receivers]

    def start(self) -> None:
        with self.errors.open("a") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "support.campaign.client", str(self.folder)),
                    *(f"{protocol}={url}" for protocol, url in self.urls.items()),
                ],
                cwd=TESTS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def check(self) -> None:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(
                f"the client ended with {self.process.returncode}:\n{self.errors.read_text()[-4000:]}"
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self._close()

    def _close(self) -> int:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        status = self.process.wait(60)
        self.process.stdout.close()
        self.process = None
        return status

    def drain(self) -> int:
        """Ends the senders; returns how many of their futures did not end."""
        self.check()
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        lines = [self.process.stdout.readline() for _ in range(2)]
        assert lines[0] == "started\n", f"{lines}:\n{self.errors.read_text()[-4000:]}"
        assert lines[1], self.errors.read_text()[-4000:]
        return int(lines[1])

    def end(self) -> None:
        assert self._close() == 0, self.errors.read_text()[-4000:]

    def trace(self) -> str:
        """Stacks of its threads, and what it has printed."""
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        return self.errors.read_text()[-4000:]

    # -- progress

    def sizes(self) -> dict[tuple[str, str], int]:
        columns = [(flow, ledger.ACKNOWLEDGED) for flow in self.flows]
        columns += [(name, ledger.RECEIVED) for name in self.receivers]
        return {column: ledger.size(self.folder, *column) for column in columns}

    async def progress(self, records: int, timeout: float = 180.0) -> None:
        """Waits until each flow and each receiver has about so many records more than now."""
        before, deadline = self.sizes(), time.monotonic() + timeout
        while behind := [
            column for column, now in self.sizes().items() if now < before[column] + 6 * records
        ]:
            self.check()
            assert time.monotonic() < deadline, f"no progress in {timeout} s: {behind}\n{self.trace()}"
            await asyncio.sleep(0.01)

    async def complete(self, receivers: Mapping[str, Iterable[str]], timeout: float = 180.0) -> None:
        """Waits until each receiver has all that was acknowledged, or until the time limit: the balance then
        says what is missing."""
        deadline = time.monotonic() + timeout
        for receiver, flows in receivers.items():
            wanted = {
                f"{flow}:{number}"
                for flow in flows
                for number in ledger.records(self.folder, flow, ledger.ACKNOWLEDGED)
            }
            while time.monotonic() < deadline:
                if wanted <= set(ledger.records(self.folder, receiver, ledger.RECEIVED)):
                    break
                await asyncio.sleep(0.1)

    # -- the balance

    def account(
        self, receivers: Mapping[str, Iterable[str]], *, killed: bool, again: Collection[str]
    ) -> list[Line]:
        """The balance of each flow at each receiver. One that was killed may get messages again, and so may
        those of ``again``."""
        promises = {
            flow: promise for protocol in self.urls for flow, promise in PROTOCOLS[protocol].flows.items()
        }
        repeated = set(again) | {
            name
            for protocol in self.urls
            if killed or PROTOCOLS[protocol].repeats
            for name in PROTOCOLS[protocol].receivers
        }
        return [
            account(
                self.folder,
                flow,
                receiver,
                ledger.Promise(repeats=True, lane=promises[flow].lane)
                if receiver in repeated
                else promises[flow],
            )
            for receiver, flows in receivers.items()
            for flow in flows
        ]

    def judge(
        self,
        receivers: Mapping[str, Iterable[str]],
        *,
        killed: bool,
        pending: int,
        again: Collection[str] = (),
    ) -> None:
        """Prints the balance and asserts what is promised."""
        lines = self.account(receivers, killed=killed, again=again)
        print(HEADING, *lines, sep="\n")
        faults = [fault for line in lines for fault in line.faults]
        if pending:
            faults.append(f"{pending} futures of sends did not end")
        for flow in self.flows:
            if failed := ledger.records(self.folder, flow, ledger.FAILED):
                faults.append(f"{flow}: {len(failed)} sends failed: {failed[:3]}")
        for name in self.receivers:
            if confirmed := ledger.records(self.folder, name, ledger.AGAIN):
                faults.append(
                    f"{name}: {len(confirmed)} came again after their acknowledgement was confirmed"
                )
        assert not faults, "\n".join(faults)


class Neighbour:
    """A process that opens, reads and closes the broker's database the whole time."""

    def __init__(self, database: Path, folder: Path) -> None:
        self._printed = folder / "neighbour.log"
        with self._printed.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", NEIGHBOUR, str(database)], stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def reads(self) -> int:
        """How often it has read."""
        assert self.process.poll() is None, self._printed.read_text()[-2000:]
        lines = self._printed.read_text().splitlines()
        return int(lines[-1]) if lines else 0

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.asynccontextmanager
async def steady_mqtt(folder: Path, url: str, name: str = "mqtt-steady") -> AsyncIterator[asyncio.Task[None]]:
    """A subscriber in this process, which is not killed: QoS 2 reaches it exactly once."""
    async with opened(lambda: connect(url, client_id=name, operation_timeout=20, **QUICK)) as client:
        async with opened(lambda: client.consumer(MQTT_FILTER, qos=2)) as consumer:
            task = asyncio.ensure_future(Receiver(folder, name).run(consumer))
            try:
                yield task
                if task.done():
                    task.result()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def keep_for_audit(url: str) -> None:
    """Makes the subscriptions that `audit_pulsar` reads: what they have not acknowledged stays."""
    async with opened(lambda: connect(url, **QUICK)) as client:
        for topic in (PULSAR_TOPIC, PULSAR_PARTITIONED):
            async with opened(lambda topic=topic: client.consumer(topic, "audit", position="earliest")):
                pass


async def _drain(folder: Path, flow: str, consumer: Any, quiet: float) -> None:
    """Records what is stored of a flow: waits for all that was acknowledged, and then until no message comes
    for ``quiet`` seconds."""
    name = f"{flow}-log"
    missing = {f"{flow}:{number}" for number in ledger.records(folder, flow, ledger.ACKNOWLEDGED)}
    missing.difference_update(ledger.records(folder, name, ledger.RECEIVED))
    receiver = Receiver(folder, name)
    while messages := await consumer.receive_many(5000, timeout=PATIENCE if missing else quiet):
        records = [ledger.record_of(bytes(message.data)) for message in messages]
        receiver.received.add(records, sync=False)
        missing.difference_update(records)
        for message in messages:
            await consumer.ack(message)


async def audit_pulsar(folder: Path, url: str, quiet: float = 1.5) -> dict[str, tuple[str, ...]]:
    """Records everything that is stored in the topics; returns the receivers with their flows."""
    async with opened(lambda: connect(url, **QUICK)) as client:
        topics = {"pulsar": PULSAR_TOPIC, "pulsar-parts": PULSAR_PARTITIONED}
        for flow, topic in topics.items():
            async with client.consumer(topic, "audit", position="earliest") as consumer:
                await _drain(folder, flow, consumer, quiet)
    return {f"{flow}-log": (flow,) for flow in topics}


async def audit_tubemq(folder: Path, url: str, quiet: float = 1.5) -> dict[str, tuple[str, ...]]:
    """As `audit_pulsar`, for the partitions of TubeMQ."""
    async with opened(lambda: connect(url, heartbeat_interval=0.5, **QUICK)) as client:
        async with client.consumer(TUBEMQ_TOPIC, "audit", position="first") as consumer:
            # It is given its partitions one after the other.
            deadline = time.monotonic() + PATIENCE
            while sum(part["state"] == "reading" for part in consumer.partitions()) < 3:
                assert time.monotonic() < deadline, consumer.partitions()
                await asyncio.sleep(0.05)
            await _drain(folder, "tubemq", consumer, quiet)
    return {"tubemq-log": ("tubemq",)}
