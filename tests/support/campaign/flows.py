"""Senders and receivers that record in a ledger what they do. They can be killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import forebay
from forebay import errors

from support.campaign import ledger
from support.campaign.ledger import Column, Promise, by_key, payload, record_of

WINDOW = 32
PAUSE = 0.01
"""Seconds between two bursts of a sender: a campaign is about faults, not about load."""

PULSAR_TOPIC = "persistent://public/default/campaign"
PULSAR_PARTITIONED = "persistent://public/default/campaign-parts"
TUBEMQ_TOPIC = "campaign"
MQTT_FILTER = "campaign/#"

#: The type of the client depends on the protocol.
connect: Any = forebay.connect

#: What clients are told in every campaign: they reconnect fast.
QUICK: dict[str, Any] = {"max_backoff": 0.2}
#: ... and notice soon that a connection is dead.
ALERT: dict[str, Any] = {"keep_alive": 2} | QUICK
ALERT_TUBEMQ: dict[str, Any] = {"heartbeat_interval": 0.5, "request_timeout": 3} | QUICK


class Sender:
    """Sends numbered messages, each recorded before it is sent and after it is acknowledged."""

    def __init__(self, folder: Path, flow: str, send: Callable[[int], Any]) -> None:
        self.flow, self.send = flow, send
        self.attempted = Column(folder, flow, ledger.ATTEMPTED)
        self.acknowledged = Column(folder, flow, ledger.ACKNOWLEDGED)
        self.failed = Column(folder, flow, ledger.FAILED)
        before = ledger.numbers(folder, flow, ledger.ATTEMPTED)
        self.next = max(before, default=-1) + 1
        #: Numbers of earlier processes whose outcome is unknown.
        self.unknown = sorted(set(before) - set(ledger.numbers(folder, flow, ledger.ACKNOWLEDGED)))
        self._waiting: dict[asyncio.Future[Any], int] = {}

    def _submit(self, number: int) -> None:
        self._waiting[asyncio.ensure_future(self.send(number))] = number

    def _settle(self) -> None:
        done = [future for future in self._waiting if future.done()]
        settled = [(self._waiting.pop(future), future.exception()) for future in done]
        self.acknowledged.add(number for number, error in settled if error is None)
        self.failed.add(
            f"{number} {type(error).__name__} {error}".replace("\n", " ")
            for number, error in settled
            if error is not None
        )

    async def run(self, stop: asyncio.Event, again: list[int] | None = None) -> None:
        """Sends ``again`` and then new numbers until it is told to stop."""
        backlog = list(again or ())
        while not stop.is_set():
            free = min(WINDOW - len(self._waiting), random.randrange(1, 10))
            if backlog:
                burst, backlog = backlog[:free], backlog[free:]
            else:
                burst = list(range(self.next, self.next + free))
                self.next += free
                self.attempted.add(burst, sync=False)
            for number in burst:
                self._submit(number)
            await asyncio.sleep(PAUSE)
            if len(self._waiting) >= WINDOW:
                await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
            self._settle()
        for number in backlog:
            self._submit(number)

    async def drain(self, timeout: float) -> int:
        """Waits for the outcomes; returns how many futures did not end."""
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=timeout)
        self._settle()
        return len(self._waiting)


class Receiver:
    """Records messages before it acknowledges them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.received = Column(folder, name, ledger.RECEIVED)
        self.confirmed = Column(folder, name, ledger.CONFIRMED)
        self.again = Column(folder, name, ledger.AGAIN)
        #: What an earlier process was told the broker has stored as acknowledged.
        self._gone = set(ledger.records(folder, name, ledger.CONFIRMED))

    async def run(self, consumer: Any, *, receipts: bool = False) -> None:
        """Receives until it is cancelled. ``receipts``: `ack_many` waits for the broker."""
        while True:
            messages = await consumer.receive_many(100)
            if not messages:
                continue
            records = [record_of(bytes(message.data)) for message in messages]
            self.received.add(records)
            self.again.add(record for record in records if record in self._gone)
            if receipts:
                # Without a connection, or without an answer in time, the messages may come again.
                with contextlib.suppress(errors.Disconnected, errors.Timeout):
                    await consumer.ack_many(messages)
                    self.confirmed.add(records)
            else:
                for message in messages:
                    await consumer.ack(message)


@contextlib.asynccontextmanager
async def opened(make: Callable[[], Any], timeout: float = 180.0) -> AsyncIterator[Any]:
    """Opens a handle. The broker may be away, or may not have noticed yet that its predecessor was killed."""
    async with asyncio.timeout(timeout):
        while True:
            try:
                handle = await make()
                break
            except (errors.Error, OSError):
                await asyncio.sleep(0.05)
    try:
        yield handle
    finally:
        with contextlib.suppress(errors.Error):
            await handle.close()


class Client:
    """The flows of one protocol in this process.

    ``start`` opens and runs everything, ``drain`` ends the senders, ``close`` ends the rest.
    """

    #: Flows and what a receiver outside this process is promised about each.
    flows: dict[str, Promise]
    #: Names of receivers with the flows they get.
    receivers: dict[str, tuple[str, ...]]
    #: Whether a receiver may get messages again although it is not killed: acknowledgements can be
    #: lost.
    repeats = False

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.stop = asyncio.Event()
        self.senders: list[Sender] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        self.stack = contextlib.AsyncExitStack()

    async def open(self, make: Callable[[], Any]) -> Any:
        return await self.stack.enter_async_context(opened(make))

    def sender(self, flow: str, send: Callable[[int], Any]) -> Sender:
        sender = Sender(self.folder, flow, send)
        self.senders.append(sender)
        return sender

    def run(self, sender: Sender, again: list[int] | None = None) -> None:
        self._sending.append(asyncio.ensure_future(sender.run(self.stop, again)))

    def receive(self, name: str, consumer: Any, *, receipts: bool = False) -> None:
        receiver = Receiver(self.folder, name)
        self.tasks.append(asyncio.ensure_future(receiver.run(consumer, receipts=receipts)))

    async def start(self) -> None:
        raise NotImplementedError

    async def drain(self, timeout: float) -> int:
        """Stops sending and waits for the outcomes; returns how many futures did not end."""
        self.stop.set()
        await asyncio.gather(*self._sending)
        return sum([await sender.drain(timeout) for sender in self.senders])

    async def close(self) -> None:
        for task in self.tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.stack.aclose()

    def check(self) -> None:
        """Raises what ended a sender or a receiver before its time."""
        for task in [*self.tasks, *self._sending]:
            if task.done():
                task.result()


class Pulsar(Client):
    """A named producer of a topic, one of a partitioned topic, and a consumer of both.

    The producers send again, under the same sequence ids, what an earlier process has no receipt for.
    """

    flows = {"pulsar": Promise(), "pulsar-parts": Promise(lane=by_key)}
    receivers = {"pulsar-work": ("pulsar", "pulsar-parts")}
    repeats = True
    topics = {"pulsar": PULSAR_TOPIC, "pulsar-parts": PULSAR_PARTITIONED}

    async def start(self) -> None:
        client = await self.open(lambda: connect(self.url, operation_timeout=20, **ALERT))
        for flow, topic in self.topics.items():
            producer = await self.open(
                lambda topic=topic, flow=flow: client.producer(
                    topic, name=f"till-{flow}", send_timeout=0, max_pending=2 * WINDOW
                )
            )
            keyed = self.flows[flow].lane is by_key

            def send(number: int, flow: str = flow, producer: Any = producer, keyed: bool = keyed) -> Any:
                key = str(by_key(number)) if keyed else None
                return producer.send(payload(flow, number), key, sequence_id=number)

            sender = self.sender(flow, send)
            again = sender.unknown
            if not keyed:
                # The last sequence id of one topic says what is stored; that of several partitions
                # does not.
                last = producer.last_sequence_id
                sender.acknowledged.add(number for number in again if number <= last)
                again = [number for number in again if number > last]
            self.run(sender, again)
        consumer = await self.open(
            lambda: client.consumer(
                list(self.topics.values()), "work", position="earliest", type="failover", ack_receipt=True
            )
        )
        self.receive("pulsar-work", consumer, receipts=True)


class Mqtt(Client):
    """A client with an outbox, one without, and a subscriber with a session that stays."""

    flows = {
        "mqtt-outbox-1": Promise(repeats=True),
        "mqtt-outbox-2": Promise(),
        "mqtt-plain-1": Promise(repeats=True),
        "mqtt-plain-2": Promise(),
    }
    receivers = {"mqtt-work": tuple(flows)}
    outbox: Any = None

    async def start(self) -> None:
        work = await self.open(
            lambda: connect(self.url, client_id="work", clean_start=False, operation_timeout=20, **ALERT)
        )
        self.receive("mqtt-work", await self.open(lambda: work.consumer(MQTT_FILTER, qos=2)))
        self.outbox = await self.open(lambda: connect(self.url, outbox=self.folder / "outbox.db", **ALERT))
        plain = await self.open(lambda: connect(self.url, **ALERT))
        for kind, client in (("outbox", self.outbox), ("plain", plain)):
            for qos in (1, 2):
                flow = f"mqtt-{kind}-{qos}"
                producer = await self.open(
                    lambda flow=flow, qos=qos, client=client: client.producer(f"campaign/{flow}", qos=qos)
                )
                self.run(
                    self.sender(
                        flow,
                        lambda number, flow=flow, producer=producer: producer.send(payload(flow, number)),
                    )
                )

    async def drain(self, timeout: float) -> int:
        pending = await super().drain(timeout)
        deadline = asyncio.get_running_loop().time() + timeout
        while left := self.outbox.stats()["outbox_messages"]:
            if asyncio.get_running_loop().time() > deadline:
                return pending + left
            await asyncio.sleep(0.02)
        return pending


class TubeMq(Client):
    """A producer whose keys choose the partition, and a member of a group."""

    flows = {"tubemq": Promise(repeats=True, lane=by_key)}
    receivers = {"tubemq-work": ("tubemq",)}

    async def start(self) -> None:
        client = await self.open(lambda: connect(self.url, **ALERT_TUBEMQ))
        producer = await self.open(lambda: client.producer(TUBEMQ_TOPIC, send_timeout=0))
        self.run(
            self.sender(
                "tubemq", lambda number: producer.send(payload("tubemq", number), str(by_key(number)))
            )
        )
        consumer = await self.open(lambda: client.consumer(TUBEMQ_TOPIC, "work", position="first"))
        self.receive("tubemq-work", consumer)


PROTOCOLS: dict[str, type[Client]] = {"pulsar": Pulsar, "mqtt": Mqtt, "tubemq": TubeMq}
