"""A TubeMQ master and broker in one that lies on request, as no real server does, and is honest otherwise.

Its honesty is tested with the official Java client in ``tests/interop/tubemq/test_peers.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.tubemq import wire
from support.tubemq.wire import Request

UNIT = 28
VISIT = 4711


@dataclass
class Peer:
    """One connection of a client."""

    writer: asyncio.StreamWriter

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def close(self) -> None:
        self.writer.close()


Answer = Callable[["Liar", Peer, Request], None]


@dataclass
class Store:
    """The messages of a topic: partition, payload, flag and message type; all partitions share one index."""

    partitions: int
    entries: list[tuple[int, bytes, int, str]] = field(default_factory=list)


@dataclass
class Reader:
    """A group at a partition."""

    member: str
    filters: set[str]
    committed: int = 0
    #: The end of the batch that was delivered and is not confirmed.
    pending: int | None = None


@dataclass
class Member:
    """A member of a group with server balance."""

    topics: list[str]
    #: The number of the event that connects all partitions, whether it was sent, and whether it is
    #: complete.
    event: int = 0
    waiting: bool = False
    done: bool = False


class Liar:
    """``lies`` are the answers to the first ``times`` requests of each method; later answers are honest."""

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        lies: dict[str, Answer] | None = None,
        times: int = 1,
    ) -> None:
        self.stores = {name: Store(count) for name, count in (topics or {"demo": 1}).items()}
        self.lies, self.times = lies or {}, times
        self.asked: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.connections = 0
        #: Bytes from clients that are not TubeMQ.
        self.broken: list[str] = []
        self._readers: dict[tuple[str, str, int], Reader] = {}
        self._members: dict[str, Member] = {}
        self.port = 0

    # -- honest answers, the master's

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def producer_register(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "brokerCheckSum": 1,
            "brokerInfos": [f"1:{self.address}"],
            "authorizedInfo": {"visitAuthorizedToken": VISIT},
            "appdConfig": {"configId": 1, "maxMsgSize": 1 << 20},
        }

    def producer_heartbeat(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "brokerCheckSum": 1,
            "topicInfos": [
                f"{name}#1:{self.stores[name].partitions}:1#"
                for name in asked["topicList"]
                if name in self.stores
            ],
            "brokerInfos": [] if asked["brokerCheckSum"] == 1 else [f"1:{self.address}"],
            "requireAuth": False,
            "authorizedInfo": {"visitAuthorizedToken": VISIT},
            "appdConfig": {"configId": 1, "maxMsgSize": 1 << 20},
        }

    def producer_close(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {}

    def consumer_register(self, asked: dict[str, Any]) -> dict[str, Any]:
        unknown = [name for name in asked["topicList"] if name not in self.stores]
        if unknown:
            return {"success": False, "errCode": 431, "errMsg": f"{unknown} is not deployed"}
        self._members[asked["clientId"]] = Member(asked["topicList"])
        return {
            "notAllocated": True,
            "defFlowCheckId": -2,
            "defFlowControlInfo": " ",
            "groupFlowCheckId": -2,
            "groupFlowControlInfo": " ",
            "qryPriorityId": -2,
            "authorizedInfo": {"visitAuthorizedToken": VISIT},
        }

    def consumer_heartbeat(self, asked: dict[str, Any]) -> dict[str, Any]:
        member = self._members.get(asked["clientId"])
        if member is None:
            return {"success": False, "errCode": 411, "errMsg": "no member of that name"}
        said: dict[str, Any] = {
            "notAllocated": not member.done,
            "authorizedInfo": {"visitAuthorizedToken": VISIT},
        }
        partitions = [
            f"{asked['clientId']}@{asked['groupName']}#1:{self.address}#{topic}:{partition}"
            for topic in member.topics
            for partition in range(self.stores[topic].partitions)
        ]
        if asked.get("event", {}).get("rebalanceId", 0) > 0:
            # An event ends whatever its answer is. A member that still lacks partitions gets
            # another event.
            member.waiting = False
            member.done = set(asked["subscribeInfo"]) >= set(partitions)
        elif not member.waiting and not member.done:
            member.event += 1
            member.waiting = True
            said["event"] = {"rebalanceId": member.event, "opType": 10, "subscribeInfo": partitions}
        return said

    def consumer_close(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._members.pop(asked["clientId"], None)
        return {}

    def balance_register(self, asked: dict[str, Any]) -> dict[str, Any]:
        unknown = [name for name in asked["topicList"] if name not in self.stores]
        if unknown:
            return {"errCode": 431, "errMsg": f"{unknown} is not deployed"}
        return {
            "brokerConfigId": 1,
            "brokerConfigList": [f"1:{self.address}"],
            "opsTaskInfo": {},
            "authorizedInfo": {"visitAuthorizedToken": VISIT},
        }

    def balance_heartbeat(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "brokerConfigId": 1,
            "opsTaskInfo": {},
            "authorizedInfo": {"visitAuthorizedToken": VISIT},
        }

    def balance_meta(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "brokerConfigId": 1,
            "topicMetaInfoId": 1,
            "topicMetaInfoList": [f"{name}#1:1:{store.partitions}:1" for name, store in self.stores.items()],
            "brokerConfigList": [] if asked["brokerConfigId"] == 1 else [f"1:{self.address}"],
        }

    # -- the broker's

    def send(self, asked: dict[str, Any]) -> dict[str, Any]:
        store = self.stores.get(asked["topicName"])
        if store is None or asked["partitionId"] >= store.partitions:
            return {"success": False, "errCode": 403, "errMsg": "no such partition"}
        if asked["checkSum"] not in (-1, wire.checksum(asked["data"])):
            return {"success": False, "errCode": 403, "errMsg": "the checksum does not hold"}
        store.entries.append((asked["partitionId"], asked["data"], asked["flag"], asked.get("msgType", "")))
        at = len(store.entries)
        return {
            "requireAuth": False,
            "messageId": at,
            "appendTime": 1_700_000_000_000 + at,
            "appendOffset": (at - 1) * UNIT,
            "errMsg": str(at),
        }

    def _reader(self, asked: dict[str, Any]) -> Reader | None:
        reader = self._readers.get((asked["groupName"], asked["topicName"], asked["partitionId"]))
        return reader if reader is not None and reader.member == asked["clientId"] else None

    def partition_register(self, asked: dict[str, Any]) -> dict[str, Any]:
        store = self.stores.get(asked["topicName"])
        if store is None or asked["partitionId"] >= store.partitions:
            return {"success": False, "errCode": 403, "errMsg": "no such partition"}
        key = (asked["groupName"], asked["topicName"], asked["partitionId"])
        known, end = self._readers.get(key), len(store.entries) * UNIT
        if known is not None and known.member not in ("", asked["clientId"]):
            return {"success": False, "errCode": 410, "errMsg": "another member has it"}
        if asked["opType"] == wire.UNREGISTER:
            if known is None:
                return {"success": False, "errCode": 412, "errMsg": "not registered"}
            if asked["readStatus"] == 0:
                self._commit(known)
            known.member, known.pending = "", None
            return {"currOffset": -1}
        if known is None:
            known = self._readers[key] = Reader("", set(), end if asked["readStatus"] else 0)
        known.member, known.filters, known.pending = asked["clientId"], set(asked["filterCondStr"]), None
        if asked["readStatus"] == 2:
            known.committed = end
        if asked.get("currOffset", -1) >= 0:
            known.committed = min(asked["currOffset"] // UNIT * UNIT, end)
        return {"currOffset": known.committed, "maxOffset": end}

    @staticmethod
    def _commit(reader: Reader) -> None:
        if reader.pending is not None:
            reader.committed, reader.pending = reader.pending, None

    def broker_heartbeat(self, asked: dict[str, Any]) -> dict[str, Any]:
        lost = []
        for one in asked["partitionInfo"]:
            topic, partition = one.split("#")[1].split(":")
            reader = self._readers.get((asked["groupName"], topic, int(partition)))
            if reader is None or reader.member != asked["clientId"]:
                lost.append(f"411:{one}")
        return {"hasPartFailure": bool(lost), "failureInfo": lost, "requireAuth": False}

    def get(self, asked: dict[str, Any]) -> dict[str, Any]:
        reader = self._reader(asked)
        if reader is None:
            return {"success": False, "errCode": 411, "errMsg": "not registered"}
        if asked.get("lastPackConsumed"):
            self._commit(reader)
        store = self.stores[asked["topicName"]]
        start = reader.committed
        if asked.get("manualCommitOffset") and reader.pending is not None:
            start = reader.pending
        first, end = start // UNIT, len(store.entries)
        if first >= end:
            return {
                "success": False,
                "errCode": 404,
                "errMsg": "The request offset reached maxOffset!",
                "currOffset": -1,
                "minLimitTime": -1,
                "escFlowCtrl": False,
                "currDataDlt": -1,
            }
        last = min(first + 50, end)
        reader.pending = last * UNIT
        messages = [
            {"messageId": first + at, "checkSum": wire.checksum(data), "payLoadData": data, "flag": flag}
            for at, (partition, data, flag, kind) in enumerate(store.entries[first:last], 1)
            if partition == asked["partitionId"] and (not reader.filters or kind in reader.filters)
        ]
        return {
            "messages": messages,
            "currOffset": start,
            "escFlowCtrl": False,
            "currDataDlt": (end - last) * UNIT,
            "requireSlow": False,
            "maxOffset": end * UNIT,
        }

    def commit(self, asked: dict[str, Any]) -> dict[str, Any]:
        reader = self._reader(asked)
        if reader is None:
            return {"success": False, "errCode": 411, "errMsg": "not registered", "currOffset": -1}
        if asked.get("lastPackConsumed"):
            self._commit(reader)
        else:
            reader.pending = None
        end = len(self.stores[asked["topicName"]].entries) * UNIT
        return {"currOffset": reader.committed, "maxOffset": end}

    # -- talking

    def fields(self, asked: Request) -> dict[str, Any]:
        """The honest answer."""
        said: dict[str, Any] = {"errCode": 200, "errMsg": "OK!"}
        # Requests with client balance have no such field.
        if not asked.name.startswith("balance"):
            said["success"] = True
        return said | getattr(self, asked.name)(asked.fields)

    def honest(self, asked: Request) -> bytes:
        return wire.response(asked.serial, asked.name, **self.fields(asked))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer, buffer = Peer(writer), bytearray()
        try:
            while data := await reader.read(1 << 16):
                buffer += data
                while (one := wire.take(buffer)) is not None:
                    asked = wire.read_request(one)
                    self.requests.append(asked)
                    self.asked[asked.name] += 1
                    lie = self.lies.get(asked.name)
                    if lie is not None and self.asked[asked.name] <= self.times:
                        lie(self, peer, asked)
                    else:
                        peer.send(self.honest(asked))
                if writer.is_closing():
                    return
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        except (wire.Malformed, KeyError, ValueError, IndexError) as error:
            self.broken.append(repr(error))
        finally:
            writer.close()

    @asynccontextmanager
    async def up(self, port: int = 0) -> AsyncIterator[str]:
        """The URL of the server."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"tubemq://{self.address}"
        finally:
            server.close()
            with contextlib.suppress(AttributeError):
                server.close_clients()
            assert not self.broken, f"the client sent bytes that are not TubeMQ: {self.broken}"

    def sent(self) -> list[bytes]:
        """The payloads of the messages that arrived."""
        return [
            wire.unpack(data, flag)[0] for store in self.stores.values() for _, data, flag, _ in store.entries
        ]


# ------------------------------------------------------------------------------ lies


def silent(_liar: Liar, _peer: Peer, _asked: Request) -> None:
    pass


def close(_liar: Liar, peer: Peer, _asked: Request) -> None:
    peer.close()


def instead(make: Callable[[Request], bytes]) -> Answer:
    """Sends these bytes instead of an answer."""
    return lambda _liar, peer, asked: peer.send(make(asked))


def altered(**fields: Any) -> Answer:
    """The honest answer, with these fields replaced."""

    def answer(liar: Liar, peer: Peer, asked: Request) -> None:
        peer.send(wire.response(asked.serial, asked.name, **(liar.fields(asked) | fields)))

    return answer


def made_up(*messages: dict[str, Any] | bytes) -> Answer:
    """A batch of these messages, which does not move the group."""

    def answer(_liar: Liar, peer: Peer, asked: Request) -> None:
        pack: dict[str, Any] = {"messages": list(messages), "currOffset": 0, "maxOffset": UNIT}
        peer.send(wire.response(asked.serial, asked.name, success=True, errCode=200, errMsg="OK!", **pack))

    return answer
