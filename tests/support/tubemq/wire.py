"""TubeMQ's frames by hand, to send what no client and no server would send, and a connection for them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import ssl
import struct
import time
import urllib.parse
import zlib
from dataclasses import dataclass, field
from typing import Any, Self

from support import protobuf
from support.waiting import PATIENCE

TOKEN = 0xFF7FF4FE
BLOCK = 8192
VERSION = 3
MASTER, READ, WRITE = 1, 2, 3
SUCCESS, ERROR, FATAL = 0, 1, 2
REGISTER, UNREGISTER = 31, 32
#: A value that is not known yet.
UNDEFINED = -2

#: By method: its number, its service, and the messages of request and response.
METHODS: dict[str, tuple[int, int, str, str]] = {
    "producer_register": (1, MASTER, "RegisterRequestP2M", "RegisterResponseM2P"),
    "producer_heartbeat": (2, MASTER, "HeartRequestP2M", "HeartResponseM2P"),
    "producer_close": (3, MASTER, "CloseRequestP2M", "CloseResponseM2P"),
    "consumer_register": (4, MASTER, "RegisterRequestC2M", "RegisterResponseM2C"),
    "consumer_heartbeat": (5, MASTER, "HeartRequestC2M", "HeartResponseM2C"),
    "consumer_close": (6, MASTER, "CloseRequestC2M", "CloseResponseM2C"),
    "send": (13, WRITE, "SendMessageRequestP2B", "SendMessageResponseB2P"),
    "partition_register": (15, READ, "RegisterRequestC2B", "RegisterResponseB2C"),
    "broker_heartbeat": (16, READ, "HeartBeatRequestC2B", "HeartBeatResponseB2C"),
    "get": (17, READ, "GetMessageRequestC2B", "GetMessageResponseB2C"),
    "commit": (18, READ, "CommitOffsetRequestC2B", "CommitOffsetResponseB2C"),
    "balance_register": (20, MASTER, "RegisterRequestC2MV2", "RegisterResponseM2CV2"),
    "balance_heartbeat": (21, MASTER, "HeartRequestC2MV2", "HeartResponseM2CV2"),
    "balance_meta": (22, MASTER, "GetPartMetaRequestC2M", "GetPartMetaResponseM2C"),
}
NAMES = {number: name for name, (number, *_) in METHODS.items()}

# One message per line, its fields numbered from 1: "i" an integer, "b" a boolean, "s" text, "y"
# bytes, anything else a message; "*" repeated.
_SCHEMA = """
RpcConnHeader flag:i traceId:i spanId:i parentId:i
RequestHeader serviceType:i protocolVer:i
RequestBody method:i timeout:i request:y
ResponseHeader status:i serviceType:i protocolVer:i
RspExceptionBody exceptionName:s stackTrace:s
RspResponseBody method:i data:y
TransferedMessage messageId:i checkSum:i payLoadData:y flag:i
AuthorizedInfo visitAuthorizedToken:i authAuthorizedToken:s
SendMessageRequestP2B clientId:s topicName:s partitionId:i data:y flag:i checkSum:i sentAddr:i msgType:s \
msgTime:s authInfo:AuthorizedInfo
SendMessageResponseB2P success:b errCode:i errMsg:s requireAuth:b messageId:i appendTime:i appendOffset:i
RegisterRequestC2B opType:i clientId:s groupName:s topicName:s partitionId:i readStatus:i filterCondStr:s* \
currOffset:i sessionKey:s sessionTime:i ssdStoreId:i qryPriorityId:i authInfo:AuthorizedInfo
RegisterResponseB2C success:b errCode:i errMsg:s currOffset:i maxOffset:i
HeartBeatRequestC2B clientId:s groupName:s readStatus:i partitionInfo:s* ssdStoreId:i qryPriorityId:i \
authInfo:AuthorizedInfo
HeartBeatResponseB2C success:b errCode:i errMsg:s hasPartFailure:b failureInfo:s* requireAuth:b
GetMessageRequestC2B clientId:s partitionId:i groupName:s topicName:s lastPackConsumed:b \
manualCommitOffset:b escFlowCtrl:b
GetMessageResponseB2C success:b errCode:i errMsg:s messages:TransferedMessage* currOffset:i minLimitTime:i \
escFlowCtrl:b currDataDlt:i requireSlow:b maxOffset:i
CommitOffsetRequestC2B clientId:s topicName:s partitionId:i groupName:s lastPackConsumed:b
CommitOffsetResponseB2C success:b errCode:i errMsg:s currOffset:i maxOffset:i
EventProto rebalanceId:i opType:i status:i subscribeInfo:s*
AuthenticateInfo userName:s timestamp:i nonce:i othParams:s signature:s
MasterCertificateInfo authInfo:AuthenticateInfo authorizedToken:s
MasterAuthorizedInfo visitAuthorizedToken:i authAuthorizedToken:s
ApprovedClientConfig configId:i maxMsgSize:i
RegisterRequestP2M clientId:s topicList:s* brokerCheckSum:i hostName:s authInfo:MasterCertificateInfo \
jdkVersion:s appdConfig:ApprovedClientConfig
RegisterResponseM2P success:b errCode:i errMsg:s brokerCheckSum:i brokerInfos:s* \
authorizedInfo:MasterAuthorizedInfo appdConfig:ApprovedClientConfig
HeartRequestP2M clientId:s brokerCheckSum:i hostName:s topicList:s* authInfo:MasterCertificateInfo \
appdConfig:ApprovedClientConfig
HeartResponseM2P success:b errCode:i errMsg:s brokerCheckSum:i topicInfos:s* brokerInfos:s* requireAuth:b \
authorizedInfo:MasterAuthorizedInfo appdConfig:ApprovedClientConfig
CloseRequestP2M clientId:s authInfo:MasterCertificateInfo
CloseResponseM2P success:b errCode:i errMsg:s
RegisterRequestC2M clientId:s groupName:s hostName:s topicList:s* subscribeInfo:s* topicCondition:s* \
requireBound:b sessionTime:i sessionKey:s totalCount:i requiredPartition:s notAllocated:b selectBig:b \
groupFlowCheckId:i defFlowCheckId:i ssdStoreId:i qryPriorityId:i authInfo:MasterCertificateInfo jdkVersion:s
RegisterResponseM2C success:b errCode:i errMsg:s topicInfo:s* notAllocated:b defFlowCheckId:i \
defFlowControlInfo:s groupFlowCheckId:i groupFlowControlInfo:s ssdStoreId:i qryPriorityId:i \
authorizedInfo:MasterAuthorizedInfo
HeartRequestC2M clientId:s groupName:s subscribeInfo:s* reportSubscribeInfo:b event:EventProto \
defFlowCheckId:i groupFlowCheckId:i ssdStoreId:i qryPriorityId:i authInfo:MasterCertificateInfo
HeartResponseM2C success:b errCode:i errMsg:s event:EventProto notAllocated:b defFlowCheckId:i \
defFlowControlInfo:s groupFlowCheckId:i groupFlowControlInfo:s ssdStoreId:i qryPriorityId:i requireAuth:b \
authorizedInfo:MasterAuthorizedInfo
CloseRequestC2M clientId:s groupName:s authInfo:MasterCertificateInfo
CloseResponseM2C success:b errCode:i errMsg:s
ClientSubRepInfo brokerConfigId:i topicMetaInfoId:i lstAssignedTime:i reportSubInfo:b partSubInfo:s*
OpsTaskInfo groupFlowCheckId:i defFlowCheckId:i qryPriorityId:i csmFrmMaxOffsetCtrlId:i requireAuth:b \
defFlowControlInfo:s groupFlowControlInfo:s
RegisterRequestC2MV2 clientId:s groupName:s hostName:s sourceCount:i nodeId:i topicList:s* \
topicCondition:s* subRepInfo:ClientSubRepInfo opsTaskInfo:OpsTaskInfo authInfo:MasterCertificateInfo \
jdkVersion:s
RegisterResponseM2CV2 errCode:i errMsg:s brokerConfigId:i brokerConfigList:s* opsTaskInfo:OpsTaskInfo \
authorizedInfo:MasterAuthorizedInfo
HeartRequestC2MV2 clientId:s groupName:s subRepInfo:ClientSubRepInfo opsTaskInfo:OpsTaskInfo \
authInfo:MasterCertificateInfo
HeartResponseM2CV2 errCode:i errMsg:s brokerConfigId:i brokerConfigList:s* topicMetaInfoId:i \
topicMetaInfoList:s* opsTaskInfo:OpsTaskInfo authorizedInfo:MasterAuthorizedInfo
GetPartMetaRequestC2M clientId:s groupName:s brokerConfigId:i topicMetaInfoId:i \
authInfo:MasterCertificateInfo
GetPartMetaResponseM2C errCode:i errMsg:s brokerConfigId:i topicMetaInfoId:i topicMetaInfoList:s* \
brokerConfigList:s*
"""


@dataclass
class _Field:
    name: str
    number: int
    kind: str
    many: bool


SCHEMA: dict[str, list[_Field]] = {}
for _line in _SCHEMA.replace("\\\n", "").strip().splitlines():
    _name, *_fields = _line.split()
    SCHEMA[_name] = [
        _Field(one.split(":")[0], number, one.split(":")[1].rstrip("*"), one.endswith("*"))
        for number, one in enumerate(_fields, 1)
    ]


class Malformed(Exception):
    """The bytes are not TubeMQ."""


# ------------------------------------------------------------------------------ messages


def encode(name: str, /, **fields: Any) -> bytes:
    """Encodes a message. Fields that are not given are left out, even required ones; nested messages are
    dictionaries."""
    known = {one.name: one for one in SCHEMA[name]}
    if unknown := fields.keys() - known.keys():
        raise TypeError(f"{name} has no {unknown}")
    given: protobuf.Fields = {}
    # By number, as the real implementations write them.
    for one in SCHEMA[name]:
        if one.name not in fields or fields[one.name] is None:
            continue
        value = fields[one.name]
        if one.kind in SCHEMA:
            value = [
                item if isinstance(item, bytes) else encode(one.kind, **item)
                for item in (value if one.many else [value])
            ]
        given[one.number] = value
    return protobuf.message(given)


def decode(name: str, data: bytes) -> dict[str, Any]:
    """The fields that a message has; repeated fields are lists."""
    found = protobuf.parse(data)
    said: dict[str, Any] = {}
    for one in SCHEMA[name]:
        values: list[Any] = found.get(one.number, [])
        if one.kind == "i":
            values = [value - 2**64 if value >= 2**63 else value for value in values]
        elif one.kind == "b":
            values = [bool(value) for value in values]
        elif one.kind == "s":
            values = [value.decode() for value in values]
        elif one.kind in SCHEMA:
            values = [decode(one.kind, value) for value in values]
        if one.many:
            said[one.name] = values
        elif values:
            said[one.name] = values[-1]
    return said


def delimited(data: bytes) -> bytes:
    return protobuf.varint(len(data)) + data


def checksum(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFFFFFF


def pack(body: bytes, attributes: dict[str, str] | str | None = None) -> tuple[bytes, int]:
    """Payload and flag of a message with attributes."""
    if not attributes:
        return body, 0
    if not isinstance(attributes, str):
        attributes = ",".join(f"{key}={value}" for key, value in attributes.items())
    text = attributes.encode()
    return struct.pack(">I", len(text)) + text + body, 1


def unpack(payload: bytes, flag: int) -> tuple[bytes, str]:
    """Body and attributes."""
    if not flag & 1:
        return payload, ""
    (size,) = struct.unpack_from(">i", payload)
    if not 0 <= size <= len(payload) - 4:
        raise Malformed(f"attributes of {size} bytes in {len(payload)}")
    return payload[4 + size :], payload[4 : 4 + size].decode()


def transfered(
    body: bytes, attributes: dict[str, str] | str | None = None, message_id: int = 1, **lies: Any
) -> dict[str, Any]:
    """A message as a broker delivers it."""
    data, flag = pack(body, attributes)
    return {"messageId": message_id, "checkSum": checksum(data), "payLoadData": data, "flag": flag} | lies


def credentials(user: str, password: str, *, at: float | None = None, nonce: int = 12345) -> dict[str, Any]:
    """An AuthenticateInfo; ``at`` is its time in seconds, now by default."""
    stamp = int((time.time() if at is None else at) * 1000)
    digest = hmac.new(password.encode(), f"{user}{stamp}{nonce}".encode(), hashlib.sha1).digest()
    signature = urllib.parse.quote_plus(base64.b64encode(digest).decode())
    return {"userName": user, "timestamp": stamp, "nonce": nonce, "othParams": "", "signature": signature}


# ------------------------------------------------------------------------------ frames


def frame(
    serial: int,
    payload: bytes,
    *,
    token: int = TOKEN,
    block: int = BLOCK,
    count: int | None = None,
    sizes: list[int] | None = None,
) -> bytes:
    """A frame, whose token, number of blocks and sizes of blocks may lie."""
    blocks = [payload[at : at + block] for at in range(0, len(payload), block)]
    out = struct.pack(">III", token, serial & 0xFFFFFFFF, len(blocks) if count is None else count)
    for number, one in enumerate(blocks):
        out += struct.pack(">I", sizes[number] if sizes else len(one)) + one
    return out


def request(
    serial: int,
    method: str | int,
    /,
    body: bytes | None = None,
    *,
    service: int | None = None,
    timeout: int | None = 10_000,
    version: int | None = VERSION,
    rpc_flag: int | None = 0,
    lies: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """A request; ``lies`` are those of ``frame``."""
    number = method
    if isinstance(method, str):
        number, its_service, name, _ = METHODS[method]
        service = its_service if service is None else service
        body = encode(name, **fields) if body is None else body
    payload = delimited(encode("RpcConnHeader", flag=rpc_flag))
    payload += delimited(encode("RequestHeader", serviceType=service, protocolVer=version))
    payload += delimited(encode("RequestBody", method=number, timeout=timeout, request=body))
    return frame(serial, payload, **lies or {})


def response(
    serial: int,
    method: str | int,
    /,
    body: bytes | None = None,
    *,
    status: int = SUCCESS,
    number: int | None = None,
    rpc_flag: int | None = 1,
    lies: dict[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """An answer of success; ``number`` replaces the method."""
    if isinstance(method, str):
        its_number, _, _, name = METHODS[method]
        body = encode(name, **fields) if body is None else body
    else:
        its_number = method
    payload = delimited(encode("RpcConnHeader", flag=rpc_flag))
    payload += delimited(encode("ResponseHeader", status=status, protocolVer=VERSION))
    payload += delimited(
        encode("RspResponseBody", method=its_number if number is None else number, data=body)
    )
    return frame(serial, payload, **lies or {})


def failure(serial: int, exception: str, text: str = "", *, status: int = ERROR) -> bytes:
    """An answer of failure: the name of a Java class and a text."""
    payload = delimited(encode("RpcConnHeader", flag=1))
    payload += delimited(encode("ResponseHeader", status=status, protocolVer=VERSION))
    return frame(
        serial, payload + delimited(encode("RspExceptionBody", exceptionName=exception, stackTrace=text))
    )


@dataclass
class Frame:
    serial: int
    #: The concatenated blocks.
    payload: bytes
    sizes: list[int]
    #: The frame as received.
    raw: bytes


def take(buffer: bytearray) -> Frame | None:
    """Removes the first frame from the buffer; None if it is incomplete."""
    if len(buffer) < 12:
        return None
    token, serial, count = struct.unpack_from(">III", buffer)
    if token != TOKEN:
        raise Malformed(f"no token: {bytes(buffer[:12]).hex()}")
    at, parts = 12, []
    for _ in range(count):
        if len(buffer) < at + 4:
            return None
        (size,) = struct.unpack_from(">I", buffer, at)
        if len(buffer) < at + 4 + size:
            return None
        parts.append(bytes(buffer[at + 4 : at + 4 + size]))
        at += 4 + size
    raw = bytes(buffer[:at])
    del buffer[:at]
    return Frame(serial, b"".join(parts), [len(part) for part in parts], raw)


def split(payload: bytes) -> list[bytes]:
    """The three messages of a frame."""
    found: list[bytes] = []
    at = 0
    while len(found) < 3:
        size = shift = 0
        while True:
            if at >= len(payload) or shift > 28:
                raise Malformed(f"the length of part {len(found)} of {payload[:64].hex()}")
            byte = payload[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if at + size > len(payload):
            raise Malformed(f"part {len(found)} has {size} bytes of {len(payload) - at}")
        found.append(payload[at : at + size])
        at += size
    return found


@dataclass
class Request:
    serial: int
    number: int
    service: int | None
    version: int | None
    timeout: int | None
    body: bytes

    @property
    def name(self) -> str:
        return NAMES.get(self.number, str(self.number))

    @property
    def fields(self) -> dict[str, Any]:
        return decode(METHODS[self.name][2], self.body)


def read_request(one: Frame) -> Request:
    _, header, body = split(one.payload)
    heads, said = decode("RequestHeader", header), decode("RequestBody", body)
    return Request(
        one.serial,
        said["method"],
        heads.get("serviceType"),
        heads.get("protocolVer"),
        said.get("timeout"),
        said.get("request", b""),
    )


@dataclass
class Response:
    serial: int
    status: int
    number: int | None
    body: bytes
    #: Of a failure: a Java class and a text.
    exception: str = ""
    text: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, otherwise: Any = None) -> Any:
        return self.fields.get(name, otherwise)


def read_response(one: Frame) -> Response:
    _, header, body = split(one.payload)
    status = decode("ResponseHeader", header)["status"]
    if status != SUCCESS:
        said = decode("RspExceptionBody", body)
        return Response(one.serial, status, None, b"", said["exceptionName"], said.get("stackTrace", ""))
    said = decode("RspResponseBody", body)
    number = said["method"]
    fields = decode(METHODS[NAMES[number]][3], said["data"]) if number in NAMES else {}
    return Response(one.serial, status, number, said["data"], fields=fields)


# ------------------------------------------------------------------------------ a connection


class Raw:
    """A connection to a master or a broker that sends exactly the given bytes."""

    def __init__(
        self, port: int, *, context: ssl.SSLContext | None = None, timeout: float = PATIENCE
    ) -> None:
        self.timeout = timeout
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._buffer = bytearray()
        self._serial = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def frame(self, timeout: float | None = None) -> Frame | None:
        """The next frame; None when the server has closed the connection. Raises ``TimeoutError``."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while (one := take(self._buffer)) is None:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self.socket.recv(1 << 18)
            except (ConnectionResetError, BrokenPipeError):
                return None
            except (TimeoutError, ssl.SSLWantReadError):
                raise TimeoutError("no frame arrived") from None
            if not data:
                return None
            self._buffer += data
        return one

    def response(self, timeout: float | None = None) -> Response:
        one = self.frame(timeout)
        assert one is not None, "the server closed the connection instead of an answer"
        return read_response(one)

    def ask(self, method: str, /, **fields: Any) -> int:
        """Sends a request and returns its serial."""
        self._serial += 1
        self.send(request(self._serial, method, **fields))
        return self._serial

    def call(self, method: str, /, **fields: Any) -> Response:
        """Sends a request and returns its answer."""
        serial = self.ask(method, **fields)
        answer = self.response()
        assert answer.serial == serial, f"serial {answer.serial} instead of {serial}"
        assert answer.status == SUCCESS, f"{answer.exception}: {answer.text}"
        assert answer.number == METHODS[method][0], answer.number
        return answer

    def closed(self, timeout: float | None = None) -> list[Frame]:
        """Waits until the server closes the connection; returns the frames before that."""
        said = []
        while (one := self.frame(timeout)) is not None:
            said.append(one)
        return said
