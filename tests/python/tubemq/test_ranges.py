"""Ranges of partitions at a broker that fails, lies, or has nothing more to give."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import Any

import pyarrow as pa
import pytest

import forebay
from forebay import blocking, errors
from forebay._core.read_plan import ReadPlan
from forebay.tubemq._offsets import UNIT
from forebay.tubemq._ranges import Part, Range, rows

from support.tubemq import wire
from support.tubemq.liar import Answer, Liar, Peer, Reader, altered, close, made_up, silent
from support.tubemq.wire import Request
from support.waiting import until

TIMEOUT = 1.0
"""Longest time without progress here."""
COUNT = 120
"""Messages; an answer has 50."""
FOREVER = 1_000_000
COLUMNS = [("value", "value")]


def liar(get: Answer | None = None, times: int = FOREVER, partitions: int = 1, **lies: Answer) -> Liar:
    """A server with messages ``0``, ``1`` ..., dealt out to the partitions, that lies to readers."""
    given = lies if get is None else {"get": get, **lies}
    made = Liar({"demo": partitions}, given, times)
    made.stores["demo"].entries = [(number % partitions, b"%d" % number, 0, "") for number in range(COUNT)]
    return made


def from_call(number: int, lie: Answer) -> Answer:
    """Lies from that call of the method on, and is honest before."""

    def answer(liar: Liar, peer: Peer, asked: Request) -> None:
        if liar.asked[asked.name] >= number:
            lie(liar, peer, asked)
        else:
            peer.send(liar.honest(asked))

    return answer


def part(server: Liar, number: int = 0) -> Part:
    return Part("demo", 1, number, "127.0.0.1", server.port)


def plan(timeout: float = TIMEOUT, fails_on_loss: bool = True) -> ReadPlan:
    return ReadPlan(["demo"], timeout=timeout, fails_on_loss=fails_on_loss, groups="g")


def values_of(url: str, span: Range, fails_on_loss: bool, timeout: float = TIMEOUT) -> list[int]:
    with blocking.connect(url) as client:
        found = rows(client, plan(timeout, fails_on_loss), span, COLUMNS)
        tables = [pa.record_batch(batch) for batch in found]
    return [int(value) for table in tables for value in table.column("value").to_pylist()]


async def read(
    server: Liar,
    *,
    number: int = 0,
    start: int = 0,
    end: int = COUNT,
    fails_on_loss: bool = True,
    timeout: float = TIMEOUT,
) -> list[int]:
    """The values of the entries from ``start`` to ``end``."""
    async with server.up() as url:
        span = Range(part(server, number), start * UNIT, end * UNIT)
        return await asyncio.to_thread(values_of, url, span, fails_on_loss, timeout)


def registrations(server: Liar) -> list[Request]:
    """The calls that take partitions and give them back."""
    return [asked for asked in server.requests if asked.name == "partition_register"]


def groups(server: Liar) -> set[str]:
    """The groups in which partitions were taken."""
    return {asked.fields["groupName"] for asked in registrations(server)}


def holders(server: Liar) -> list[str]:
    """The groups in which a partition is held."""
    return [key[0] for key, reader in server._readers.items() if reader.member]


def refused(code: int, text: str, **fields: Any) -> Answer:
    """A failure, which does not move the group."""
    said = {"success": False, "errCode": code, "errMsg": text, "currOffset": -1, **fields}
    return lambda _liar, peer, asked: peer.send(wire.response(asked.serial, asked.name, **said))


FAILURES: dict[str, Answer] = {
    "503": refused(503, "Read StoreService temporary unavailable!"),
    "500": refused(500, "broken"),
    "301": refused(301, "moved"),
    "an unknown code": refused(-77, "?"),
    "no messages and no movement": made_up(),
    "nothing at this offset": refused(404, "Can't found Message by index!"),
    "not registered": refused(411, "not registered"),
    "more messages than entries": altered(messages=[wire.transfered(b"m", "a=b")] * 100),
    "the connection is cut": close,
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_broker_that_always_fails_ends_the_read_in_time(name: str):
    server = liar(FAILURES[name])
    began = time.monotonic()
    with pytest.raises(errors.Error) as failed:
        await asyncio.wait_for(read(server), 90)
    assert TIMEOUT < time.monotonic() - began < 60
    assert failed.value.retriable and "demo 1:0" in str(failed.value)
    assert server.asked["get"] < 60, "it waits longer and longer"
    assert groups(server) == {"g-0"}
    assert holders(server) == []


@pytest.mark.parametrize("name", FAILURES)
async def test_a_broker_that_fails_for_a_while_costs_nothing(name: str):
    server = liar(from_call(2, FAILURES[name]), times=6)
    assert await asyncio.wait_for(read(server, timeout=60), 90) == list(range(COUNT))
    assert groups(server) == {"g-0"}
    assert holders(server) == []


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_where_a_range_ends_between_others_ends_it_in_time(name: str):
    """There only a second look tells which messages of an answer lie before the end."""
    server = liar(from_call(2, FAILURES[name]), partitions=2)
    with pytest.raises(errors.Error):
        await asyncio.wait_for(read(server, end=13), 90)
    assert server.asked["get"] < 120
    again = liar(from_call(2, FAILURES[name]), times=6, partitions=2)
    assert await asyncio.wait_for(read(again, end=13, timeout=60), 90) == list(range(0, 13, 2))
    assert groups(server) == groups(again) == {"g-0"}


def slower(milliseconds: int) -> Answer:
    return refused(452, "slower", minLimitTime=milliseconds)


def in_turn(*lies: Answer) -> Answer:
    def answer(liar: Liar, peer: Peer, asked: Request) -> None:
        lies[liar.asked[asked.name] % len(lies)](liar, peer, asked)

    return answer


async def test_pauses_that_a_rule_asks_for_are_no_time_without_progress(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    server = liar(slower(400), times=4)
    assert await asyncio.wait_for(read(server), 90) == list(range(COUNT))
    await until(lambda: "rule for the flow" in caplog.text)
    told = [record.getMessage() for record in caplog.records if "rule for the flow" in record.getMessage()]
    assert len(told) == 1 and "demo 1:0" in told[0] and "offset 0" in told[0]


async def test_a_rule_does_not_hide_that_nothing_comes():
    server = liar(in_turn(slower(50), FAILURES["503"]))
    began = time.monotonic()
    with pytest.raises(errors.ServiceNotReady):
        await asyncio.wait_for(read(server), 90)
    assert time.monotonic() - began < 60


async def test_a_rule_where_a_range_ends_between_others():
    server = liar(from_call(2, slower(50)), times=4, partitions=2)
    assert await asyncio.wait_for(read(server, end=13), 90) == list(range(0, 13, 2))


def deletes_the_topic(liar: Liar, peer: Peer, asked: Request) -> None:
    liar.stores.pop("demo", None)
    refused = {"success": False, "errCode": 403, "errMsg": "no such topic"}
    peer.send(wire.response(asked.serial, asked.name, **refused))


@pytest.mark.parametrize("call", ["get", "commit"])
async def test_a_topic_that_is_deleted_in_the_middle_is_lost_data(call: str):
    def server() -> Liar:
        return liar(**{call: from_call(2, deletes_the_topic)})

    with pytest.raises(errors.DataLost, match="does not have the partition any more"):
        await asyncio.wait_for(read(server()), 90)
    some = await asyncio.wait_for(read(server(), fails_on_loss=False), 90)
    assert some == list(range(50)), "what came before"


async def test_answers_that_do_not_fit_together_are_lost_data(caplog: pytest.LogCaptureFixture):
    other = altered(messages=[wire.transfered(b"another", "a=b")])

    def server() -> Liar:
        return liar(
            in_turn(other, lambda liar, peer, asked: peer.send(liar.honest(asked))), partitions=2, times=2
        )

    with pytest.raises(errors.DataLost, match="are not the same when they are read again from 364 on"):
        await asyncio.wait_for(read(server(), end=13), 90)
    assert await asyncio.wait_for(read(server(), end=13, fails_on_loss=False), 90) == list(range(0, 26, 2))
    await until(lambda: "are not the same" in caplog.text)


async def test_a_damaged_message_is_lost_data(caplog: pytest.LogCaptureFixture):
    def damages(liar: Liar, peer: Peer, asked: Request) -> None:
        said = liar.fields(asked)
        said["messages"][7]["checkSum"] ^= 1
        peer.send(wire.response(asked.serial, asked.name, **said))

    with pytest.raises(errors.DataLost, match="between the offsets 0 and 1400 is damaged"):
        await read(liar(damages, times=1))
    left = await read(liar(damages, times=1), fails_on_loss=False)
    assert left == [number for number in range(COUNT) if number != 7]
    await until(lambda: "is damaged" in caplog.text)


async def test_a_tail_that_is_lost_while_it_is_read_is_lost_data():
    def loses(liar: Liar, peer: Peer, asked: Request) -> None:
        del liar.stores["demo"].entries[50:]
        peer.send(liar.honest(asked))

    with pytest.raises(errors.DataLost, match=r"ends at offset 1400, before 3360"):
        await asyncio.wait_for(read(liar(from_call(2, loses))), 90)
    server = liar(from_call(2, loses))
    assert await asyncio.wait_for(read(server, fails_on_loss=False), 90) == list(range(50))


async def test_a_table_is_no_larger_for_its_attributes():
    server = Liar({"demo": 1})
    for number in range(24):
        message = wire.transfered(b"%d" % number, "a=" + "x" * 500_000)
        server.stores["demo"].entries.append((0, message["payLoadData"], message["flag"], ""))

    def sizes(url: str) -> list[int]:
        with blocking.connect(url) as client:
            span = Range(part(server), 0, 24 * UNIT)
            found = rows(client, plan(), span, [("headers", "headers")])
            return [pa.record_batch(batch).nbytes for batch in found]

    async with server.up() as url:
        found = await asyncio.to_thread(sizes, url)
    assert sum(found) > 24 * 500_000 and max(found) < 5 << 20


def unregistered(server: Liar) -> set[str]:
    """The clients that have given a partition back."""
    asked = [one.fields for one in registrations(server)]
    return {fields["clientId"] for fields in asked if fields["opType"] == wire.UNREGISTER}


@pytest.mark.parametrize("how", ["closed", "forgotten"])
async def test_a_reader_that_is_left_while_it_takes_a_partition_gives_it_back(how: str):
    def takes(liar: Liar, peer: Peer, asked: Request) -> None:
        # Without a word about it.
        liar.partition_register(asked.fields)

    server = liar(partition_register=takes, times=1)
    async with server.up() as url, forebay.connect(url) as client:
        span = (part(server).location, 0, COUNT * UNIT)
        reader = await client._native.range(*span, COLUMNS, TIMEOUT, True, set(), "g")
        pending = asyncio.ensure_future(reader.read(1000, 1000))
        await until(lambda: holders(server) == ["g-0"])
        if how == "closed":
            await reader.close()
            with pytest.raises(errors.Closed):
                await pending
        else:
            pending.cancel()
        del pending, reader
        gc.collect()
        await until(lambda: holders(server) == [])
        assert len(unregistered(server)) == 1


async def test_offsets_of_a_group_are_set_unless_another_client_has_it():
    server = liar(partitions=2)
    async with server.up() as url, forebay.connect(url) as client:
        server._readers["mine", "demo", 1] = Reader("another", set())
        places = [(part(server, number).location, 2 * UNIT) for number in (0, 1)]
        first, second = await client._native.confirm("mine", places)
    assert first is None and "another member has it" in second
    set_to = {key[2]: (reader.committed, reader.member) for key, reader in server._readers.items()}
    assert set_to == {0: (2 * UNIT, ""), 1: (0, "another")}
    # It is an offset that is to stay.
    assert {asked.fields.get("sessionKey") for asked in registrations(server)} == {None}
    await read(server := liar())
    assert {asked.fields["sessionKey"] for asked in registrations(server)} == {"forebay: no offset"}


async def test_a_broker_that_is_silent_ends_the_read():
    server = liar(silent)

    def values(url: str) -> list[int]:
        with blocking.connect(url, request_timeout=0.5) as client:
            found = rows(client, plan(), Range(part(server), 0, UNIT), COLUMNS)
            return [pa.record_batch(batch).num_rows for batch in found]

    async with server.up() as url:
        began = time.monotonic()
        with pytest.raises(errors.Error):
            await asyncio.wait_for(asyncio.to_thread(values, url), 90)
        assert time.monotonic() - began < 60
    assert groups(server) == {"g-0"}
