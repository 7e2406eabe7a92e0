"""Options that decide who comes in, whom a client trusts, and what it says of itself: each with every
malformed value. The broker or the client refuses to start with an error that names the option, and guesses
nothing. What it takes all the same is in `ACCEPTED`, with the reason."""

from __future__ import annotations

import codecs
import hashlib
import json
import signal
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

import forebay
from forebay import blocking, errors
from forebay._core import broker_endpoints, protocols
from forebay._core.native import hash_password
from forebay._core.options import Table

from support.certificates import Authority
from support.commands import ended
from support.tokens import KEY

# -------------------------------------------------------------------------------- options

TABLES: dict[str, Table] = {
    "broker": protocols.table("broker"),
    "listener": broker_endpoints.OPTIONS,
    **{f"{key}.client": protocols.table(f"{key}.client") for key in protocols.PROTOCOLS},
}
"""The options of brokers and clients. Producers and consumers open no doors."""

DOORS: dict[str, dict[str, str]] = {
    "broker": {
        "token_key": "key",
        "token_audience": "text",
        "tls_cert": "certificate",
        "tls_key": "private key",
        "tls_client_ca": "client authorities",
        "acl_file": "permissions",
        "mqtt_password_file": "MQTT users",
        "tubemq_user_file": "TubeMQ users",
        "subscription_owners": "flag",
        "allow_anonymous": "flag",
        "host": "host",
        "listeners": "listeners",
        "port": "port",
        "http_port": "port",
        "mqtt_port": "port",
        "mqtt_ws_port": "port",
        "tubemq_port": "port",
        "advertised_url": "URL",
        "tubemq_advertised_host": "advertised host",
    },
    "listener": {
        "tls_cert": "certificate",
        "tls_key": "private key",
        "tls_client_ca": "client authorities",
        "tls": "flag",
        "anonymous": "flag",
        "host": "host",
        "mode": "mode",
        "advertised_host": "advertised host",
    },
    "pulsar.client": {
        "token": "token",
        "username": "text",
        "password": "secret",
        "basic_method": "text",
    },
    "mqtt.client": {
        "username": "text",
        "password": "password",
        "tls_alpn": "ALPN",
        "ws_headers": "headers",
        "ws_query": "query",
        "authentication_method": "text",
        "authenticator": "callable",
    },
    "tubemq.client": {"username": "text", "password": "secret"},
}
"""The form of each option that opens a door."""
for _key in protocols.PROTOCOLS:
    DOORS[f"{_key}.client"] |= {
        "tls_ca": "authorities",
        "tls_cert": "certificate",
        "tls_key": "private key",
        "tls_pin": "fingerprints",
        "tls_server_name": "text",
        "tls_skip_hostname_check": "flag",
    }

_LIMITS = "connect_timeout operation_timeout keep_alive max_backoff memory_limit retry_first threads"
NO_DOORS: dict[str, str] = {
    "broker": """data durability max_store min_disk_free max_connections max_topics auto_create
        max_message_size keep_alive retention retention_bytes default_partitions deduplicate
        schema_compatibility mqtt_max_packet_size mqtt_max_sessions mqtt_max_subscription_bytes
        mqtt_slow_subscriber mqtt_full_queue mqtt_max_queue mqtt_max_queue_bytes mqtt_max_output
        mqtt_max_inflight mqtt_receive_maximum mqtt_topic_alias_maximum mqtt_max_retained
        mqtt_max_session_expiry tubemq_partitions tubemq_retention
        tubemq_offset_retention tubemq_max_message_size tubemq_client_timeout""",
    "listener": "protocol port unix websocket",
    "pulsar.client": f"{_LIMITS} listener_name lookup_properties connections_per_broker",
    "mqtt.client": f"""{_LIMITS} version client_id clean_start session_expiry will birth max_inflight
        receive_maximum topic_alias_maximum max_packet_size receive_buffer unclaimed offline outbox
        outbox_limit connect_properties request_response_information""",
    "tubemq.client": """connect_timeout operation_timeout request_timeout heartbeat_interval max_backoff
        memory_limit receive_buffer retry_first threads""",
}
"""The options that open none."""


@pytest.mark.parametrize("name", TABLES)
def test_each_option_is_tried_or_opens_no_door(name: str) -> None:
    tried, others = set(DOORS[name]), set(NO_DOORS[name].split())
    assert not tried & others
    # A new option belongs to one of them: is there a value of it by which somebody comes in?
    assert tried | others == set(TABLES[name])


def test_each_secret_is_tried() -> None:
    for name, table in TABLES.items():
        assert {option for option, of in table.items() if of.secret} <= set(DOORS[name])


# -------------------------------------------------------------------------------- values

CA, OTHER_CA = Authority(), Authority("another authority")
CERT, PRIVATE = CA.leaf()
OTHER_CERT, OTHER_PRIVATE = CA.leaf()
CLIENT_CERT, CLIENT_PRIVATE = CA.leaf(usage=ExtendedKeyUsageOID.CLIENT_AUTH)
_loaded: Any = serialization.load_pem_private_key(PRIVATE, None)
PUBLIC: bytes = _loaded.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
ENCRYPTED: bytes = _loaded.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.BestAvailableEncryption(b"password"),
)
DER = CA.certificate.public_bytes(serialization.Encoding.DER)
VERSION_1 = (Path(__file__).parents[2] / "golden/tls/version-1-ec.pem").read_bytes()
NO_DER = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
PIN = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERT.decode())).hexdigest()
USERS = b"till:" + hash_password(b"one").encode() + b"\n"
JWK = '{"kty":"oct","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}'
BOM = codecs.BOM_UTF8

GOOD: dict[str, bytes] = {
    "key": KEY,
    "certificate": CERT,
    "private key": PRIVATE,
    "authorities": CA.pem,
    "client authorities": CA.pem,
    "permissions": b"user till\ntopic readwrite orders\n",
    "MQTT users": USERS,
    "TubeMQ users": b"till:one\n",
    "token": b"eyJh.eyJz.s-_g\n",
    "secret": b"pass word\n",
    "password": b"pass word\n",
}
"""What the file of an option has in it."""


class Raw(NamedTuple):
    """A value as it is given, and not in a file."""

    value: Any


def contents(form: str) -> dict[str, bytes]:
    """Contents of files that are wrong for a form, or that might be taken for wrong."""
    good = GOOD[form]
    lines = good.split(b"\n")
    found = {
        "as it should be": good,
        "empty": b"",
        "white space": b" \n\t\r\n",
        "a byte order mark": BOM,
        "a byte order mark before it": BOM + good,
        "line ends of Windows": good.replace(b"\n", b"\r\n"),
        "UTF-16": good.decode().encode("utf-16"),
        "no UTF-8": b"\xff" + good,
        "all bytes": bytes(range(256)),
        "a NUL in it": good[:3] + b"\0" + good[3:],
        "a long line": b"a" * (30_000 if form in ("token", "secret", "password") else 1 << 20),
        "a list of JSON": b"[]",
        "an object of JSON": b"{}",
        "a list of words in JSON": b'["a"]',
        "a certificate": CERT,
        "a private key": PRIVATE,
        "a public key": PUBLIC,
        "an encrypted private key": ENCRYPTED,
        "DER": DER,
        "only a comment": b"# nothing\n",
        "text before it": b"hello\n" + good,
        "text behind it": good + b"hello\n",
    }
    if form in ("certificate", "private key", "authorities", "client authorities"):
        found |= {
            "the first half": good[: len(good) // 2],
            "no last line": b"\n".join(lines[:-2]) + b"\n",
            "damaged base64": good.replace(lines[1][:4], b"!!!!", 1),
            "indented": b"\n".join(b"  " + line for line in lines),
            "NULs": b"\0" * 64,
            "a request for a certificate": CERT.replace(b"CERTIFICATE", b"CERTIFICATE REQUEST"),
            "certificate and key": CERT + PRIVATE,
            "two private keys": PRIVATE + OTHER_PRIVATE,
            "another private key": OTHER_PRIVATE,
            "another certificate": OTHER_CERT,
            "half a second one": good + good[:-40],
        }
    if form in FILES:
        found |= {
            "line ends of the first Macs": good.replace(b"\n", b"\r"),
            "a comment that ends so": b"# nothing\r" + good,
            "a comment behind spaces": b" \t# nothing\n" + good,
            "a control character": good.replace(b"till", b"ti\x1bll"),
        }
    if form in ("MQTT users", "TubeMQ users"):
        found |= {"a user twice": good + good, "a tab in a name": good.replace(b"till", b"ti\tll")}
    return found | MORE.get(form, {})


MORE: dict[str, dict[str, bytes]] = {
    "certificate": {"a second one that is none": CERT + NO_DER, "X.509 version 1": VERSION_1},
    "authorities": {"a second one that is none": CA.pem + NO_DER},
    "client authorities": {"a certificate of a client": CA.pem + CLIENT_CERT},
    "key": {
        "short": b"0123456789",
        "an empty set of keys": b'{"keys": []}',
        "no set of keys": b'{"keys": null}',
        "a short key in a set": b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        "a key of no kind": b'{"kty": "none"}',
        "a key of no algorithm": JWK.replace("{", '{"alg": "none", ', 1).encode(),
        "text behind JSON": JWK.encode() + b" x",
        "half of JSON": JWK.encode()[:-5],
        "half of a public key": PUBLIC[: len(PUBLIC) // 2],
        "no last line of a public key": PUBLIC.rsplit(b"-----END", 1)[0],
        "NULs": b"\0" * 64,
        "HTML": b"<!DOCTYPE html>\n<title>404 Not Found</title>\n",
        "the name of a file": b"file:/etc/forebay/token.key\n",
        "two lines": KEY + b"\n" + KEY,
        "a list of keys twice": f'{{"keys": [{JWK}], "keys": [{JWK}]}}'.encode(),
        "a member twice": JWK.replace("{", '{"kty":"oct",', 1).encode(),
        "public keys of SSH": b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 till@example\n",
    },
    "permissions": {
        "no topic": b"user till\ntopic read\n",
        "no name": b"user\ntopic read orders\n",
        "an unknown word": b"topics read orders\n",
        "an unknown access": b"topic reads orders\n",
        "words in capitals": b"USER till\n",
        "a role that is nowhere": b"user till\nmember kitchen\n",
        "a user of users": b"till:one\n",
        "the same user twice": b"user a\ntopic read x\nuser a\ntopic write x\n",
        "a space that is none": b"user\xc2\xa0till\n",
    },
    "MQTT users": {
        "a password that is not hashed": b"till:one\n",
        "no colon": b"till\n",
        "no name": USERS[4:],
        "no hash": b"till:\n",
        "a hash of an old kind": b"till:$6$c2FsdA==$aGFzaA==\n",
        "half a hash": USERS[: len(USERS) // 2],
        "a hash without its end": USERS[:-10] + b"\n",
        "too many iterations": b"till:$7$99999999$c2FsdA==$" + b"A" * 86 + b"==\n",
    },
    "TubeMQ users": {
        "no colon": b"till\n",
        "no name": b":one\n",
        "no password": b"till:\n",
        "hashes for MQTT": USERS,
        "hashes of mosquitto_passwd": b"till:$7$101$dkowch7IvcMGC9ZP$" + b"A" * 86 + b"==\n",
    },
    "token": {"two lines": b"abc\ndef\n", "words": b"Bearer abc\n", "an empty line before it": b"\n\nabc"},
}


def places(form: str, folder: Path) -> dict[str, Raw]:
    """Names of files that have nothing to read, and what is no name at all."""
    none = folder / "none"
    found = {
        "no file": Raw(str(none)),
        "no file as a path": Raw(none),
        "a folder": Raw(str(folder)),
        "empty text": Raw(""),
        "a space": Raw(" "),
        "a NUL": Raw("a\0b"),
        "no text": Raw("a\udcffb"),
        "quotes": Raw('"/etc/ssl/ca.pem"'),
        "a number": Raw(7),
        "true": Raw(True),
        "false": Raw(False),
        "a list": Raw([]),
        "a mapping": Raw({}),
        "no bytes": Raw(b""),
    }
    if form not in FILES:
        found |= {
            "no file in file:": Raw(f"file:{none}"),
            "a folder in file:": Raw(f"file:{folder}"),
            "nothing in file:": Raw("file:"),
            "no variable": Raw("env:NO_VARIABLE_OF_THIS_NAME"),
            "no name of a variable": Raw("env:"),
        }
    if form in ("secret", "password"):
        # Any text may be a password.
        for name in ("no file", "a folder", "a space", "a NUL", "quotes"):
            del found[name]
    return found


FILES = ("permissions", "MQTT users", "TubeMQ users")
"""Forms whose value is the name of a file, without file: before it."""
WORDS: dict[str, dict[str, Any]] = {
    "text": {"empty": "", "a NUL": "a\0b", "no text": "\udcff", "a number": 7, "bytes": b"a",
             "a list": ["a"]},
    "flag": {
        "empty": "", "a space": " ", "another word": "maybe", "None": "None", "null": "null",
        "a space behind it": "true ", "a mark before it": "\ufefftrue", "a line end behind it": "off\n",
        "a number": 2, "a fraction": 1.0, "bytes": b"true", "a list": [], "no text": "\udcff",
    },
    "host": {"empty": "", "a space": " ", "a NUL": "a\0b", "a URL": "mqtt://127.0.0.1", "a number": 127,
             "a mark": "\ufeff127.0.0.1", "no text": "\udcff", "a network": "127.0.0.0/8"},
    "advertised host": {"empty": "", "a space": " ", "a NUL": "a\0b", "a URL": "mqtt://127.0.0.1",
                        "a number": 127, "a mark": "\ufeff127.0.0.1", "no text": "\udcff", "a port": "a:1",
                        "brackets": "[::1]", "two": "a,b"},
    "URL": {"empty": "", "words": "maybe", "a NUL": "pulsar://a\0b", "a number": 7, "no text": "\udcff",
            "a host": "broker", "a host with a port": "broker:6650", "no host": "pulsar://:6650",
            "another protocol": "mqtt://broker:1883", "HTTP": "http://broker:8080", "port 0": "pulsar://a:0",
            "two": "pulsar://a,b", "a path": "pulsar://a:1/x", "a query": "pulsar://a:1?x=1",
            "credentials": "pulsar://a:b@c", "a mark before it": "\ufeffpulsar://a:1",
            "a line end behind it": "pulsar://a:1\n"},
    "port": {"empty": "", "a space": " ", "words": "open", "too high": 65536, "negative": -1,
             "a fraction": 1.5, "true": True, "a list": [1], "two": "1883,1884", "hexadecimal": "0x10",
             "no text": "\udcff"},
    "mode": {"empty": "", "words": "rw", "too short": "66", "too long": "00660", "decimal": 438,
             "no octal": "0888", "a sticky bit": "1777", "negative": "-660", "a list": []},
    "listeners": {
        "text": "mqtt", "empty": "", "a mapping": {"protocol": "mqtt"}, "a list of words": ["mqtt"],
        "a list of nothing": [None], "no protocol": [{"port": 0}], "no such protocol": [{"protocol": "mqt"}],
        "an empty protocol": [{"protocol": ""}], "another name": [{"protocol": "mqtt", "tls_ca": CA.pem}],
        "a name in capitals": [{"protocol": "mqtt", "TLS": True}],
        "TLS without a certificate": [{"protocol": "mqtt", "tls": True}],
        "a certificate without TLS": [
            {"protocol": "mqtt", "tls": False, "tls_cert": CERT, "tls_key": PRIVATE}
        ],
        "authorities without a certificate": [{"protocol": "mqtt", "tls_client_ca": CA.pem}],
        "a certificate without its key": [{"protocol": "mqtt", "tls_cert": CERT}],
        "a key without its certificate": [{"protocol": "mqtt", "tls_key": PRIVATE}],
        "a mode without a socket": [{"protocol": "mqtt", "mode": "0600"}],
    },
    "fingerprints": {
        "empty": "", "a comma": ",", "a comma behind it": PIN + ",", "no list": [], "63 digits": PIN[1:],
        "65 digits": PIN + "0", "SHA-1": "0" * 40, "no digits": "g" * 64,
        "its kind before it": f"sha256:{PIN}",
        "base64": "0CpLu3+/X1TwViZ1zdDBhYtOQXkRBF75y2xgAW9Ehy0=", "a certificate": CERT.decode(),
        "a file": "file:cert.pem", "bytes": PIN.encode(), "its bytes": bytes.fromhex(PIN), "a number": 7,
        "one of two": [PIN, "x"], "nothing in a list": [None], "a set": {PIN}, "a list in a list": [[PIN]],
        "digits of another script": "\uff10" * 64, "of another certificate": "0" * 64, "no text": "\udcff",
        "colons": ":".join(PIN[at : at + 2] for at in range(0, 64, 2)), "capitals": PIN.upper(),
        "a line end behind it": f" {PIN}\n", "twice": [PIN, PIN],
    },
    "ALPN": {"256 bytes": "a" * 256, "a long line": "a" * 100_000, "a number": 7, "true": True,
             "bytes": b"mqtt", "a list": [], "no text": "\udcff"},
    "headers": {"words": "Bearer", "no name": "=x", "a name twice": "a=1,a=2", "a list": ["a=1"],
                "a number": 7, "a value of bytes": {"a": b"b"}, "a value of no text": {"a": "\udcff"},
                "a line end in a value": {"a": "b\r\nc: d"}, "a line end in a name": {"a\r\nb": "c"},
                "a space in a name": {"a b": "c"}},
    "query": {"empty": "", "a space": "a b", "a mark": "a#b", "no ASCII": "\u00e4", "a number": 7,
              "a list": ["a"], "a line end": "a\n"},
    "callable": {"text": "f", "empty": "", "a number": 7, "true": True, "a list": []},
}  # fmt: skip


def values(form: str, folder: Path) -> dict[str, Raw]:
    """Everything that is tried for a form, by name."""
    if form in WORDS:
        return {name: Raw(value) for name, value in WORDS[form].items()}
    found = places(form, folder)
    for number, (name, content) in enumerate(contents(form).items()):
        path = folder / f"{form} {number}"
        path.write_bytes(content)
        path.chmod(0o600)
        found[name] = Raw(f"file:{path}" if form in ("key", "token", "secret", "password") else str(path))
    return found


_PEM = {
    "as it should be": "right",
    "line ends of Windows": "PEM of RFC 7468 ends its lines with CR, LF or both",
    "a byte order mark before it": "editors of Windows write one",
    "text before it": "RFC 7468 has explanatory text around PEM, as `openssl x509 -text` writes it",
    "text behind it": "the same",
    "certificate and key": "both in one file is usual, and each option takes its kind",
}
_NOBODY = dict.fromkeys(
    ("empty", "white space", "a byte order mark", "only a comment"),
    "no client comes in: `test_an_empty_file_admits_no_client`",
)
_LINES = {
    "as it should be": "right",
    "line ends of Windows": "lines may end so",
    "a byte order mark before it": "editors of Windows write one",
    "a comment behind spaces": "a comment may stand anywhere",
}
ACCEPTED: dict[str, dict[str, str]] = {
    "certificate": _PEM | {"a certificate": "right"},
    "private key": _PEM
    | {
        "a private key": "right",
        "two private keys": "only one that fits the certificate is taken",
        "half a second one": "the same",
    },
    "authorities": _PEM
    | {
        "a certificate": "any certificate may be trusted; no other one is then",
        "another certificate": "the same",
    },
    "client authorities": {name: why for name, why in _PEM.items() if name != "certificate and key"},
    "key": {
        "as it should be": "right",
        "line ends of Windows": "a secret without line ends is as it was",
        "no UTF-8": "any bytes may be a secret, and no stranger guesses these",
        "all bytes": "the same",
        "a long line": "a line of text may be a secret",
        "text behind it": "the same",
        "a public key": "one of the three kinds of keys",
        "quotes": "text is the secret; it begins with no path",
    },
    "permissions": _NOBODY
    | _LINES
    | {
        "the same user twice": "a section may go on later, as in Mosquitto",
    },
    "MQTT users": _NOBODY | _LINES,
    "TubeMQ users": _NOBODY | _LINES,
    "token": {
        "as it should be": "right",
        "line ends of Windows": "space around a token in a file is no part of it",
        "an empty line before it": "the same",
        "a list of JSON": "the broker decides about tokens that are no JWT",
        "an object of JSON": "the same",
        "a list of words in JSON": "the same",
        "a long line": "the same",
        "quotes": "the broker decides about tokens that are no JWT",
    },
    "secret": dict.fromkeys(
        (
            *("as it should be", "line ends of Windows", "a NUL in it", "a long line", "a list of JSON"),
            *("an object of JSON", "a list of words in JSON", "a certificate", "a private key"),
            *("a public key", "an encrypted private key", "only a comment"),
            *("text before it", "text behind it"),
        ),
        "any text that is not empty may be a password",
    ),
    "password": dict.fromkeys(
        (
            *("as it should be", "line ends of Windows", "a NUL in it", "a long line", "a list of JSON"),
            *("an object of JSON", "a list of words in JSON", "a certificate", "a private key"),
            *("a public key", "an encrypted private key", "only a comment"),
            *("text before it", "text behind it", "UTF-16", "no UTF-8", "all bytes", "DER"),
        ),
        "MQTT's passwords are bytes (3.1.3.6)",
    ),
    "fingerprints": {
        "colons": "as OpenSSL writes them",
        "capitals": "as OpenSSL writes them",
        "a line end behind it": "space around it is no part of it",
        "twice": "the same one",
    },
}
"""Values that are taken, by form, and why that is no guess."""


UNTRUSTED = {
    ("tls_ca", "a certificate"),
    ("tls_ca", "another certificate"),
    ("tls_ca", "certificate and key"),
    ("tls_pin", "of another certificate"),
}
"""Good values that are not those of the server: the client does not trust it."""


def test_what_is_accepted_is_tried(tmp_path: Path) -> None:
    for form, reasons in ACCEPTED.items():
        assert set(reasons) <= set(values(form, tmp_path)), form


# -------------------------------------------------------------------------------- trying


class Server(NamedTuple):
    plain: forebay.Broker
    secure: forebay.Broker


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Brokers that admit everybody, without and with TLS."""
    ports: dict[str, Any] = {"port": 0, "mqtt_port": 0, "mqtt_ws_port": 0, "tubemq_port": 0}
    with forebay.Broker(**ports) as plain, forebay.Broker(**ports, tls_cert=CERT, tls_key=PRIVATE) as secure:
        yield Server(plain, secure)


def verdict(act: Callable[[], Any], option: str) -> str:
    """What came of a value: accepted, refused by name, or anything else."""
    try:
        act()
    except errors.Error as error:
        return named(type(error), str(error), option)
    except Exception as error:
        return f"raised {error!r}"
    return "accepted"


def named(kind: type[Exception], text: str, option: str) -> str:
    if KEY.decode() in text or PRIVATE.splitlines()[1].decode() in text or "pass word" in text:
        return f"has the secret in its error: {text}"
    if kind is errors.TlsError and text.startswith("TLS to 127.0.0.1:"):
        return "not trusted"
    if kind is not errors.InvalidArgument:
        return f"raised {kind.__name__}: {text}"
    names = [option, f"--{option.replace('_', '-')}"]
    if option == "listeners":
        names += ["listener ", "tls_cert"]
    return "refused" if any(name in text for name in names) else f"names nothing: {text}"


def judged(form: str, option: str, tried: Mapping[str, Raw], act: Callable[[Any], Any]) -> str:
    """The values of which came something else than `ACCEPTED` says."""
    wrong: list[str] = []
    for name, (value,) in tried.items():
        expected = "accepted" if name in ACCEPTED.get(form, ()) else "refused"
        if (option, name) in UNTRUSTED:
            expected = "not trusted"
        if (came := verdict(lambda value=value: act(value), option)) != expected:
            wrong.append(f"{option}: {name}: {came}, not {expected}")
    return "\n".join(wrong)


def with_certificate(option: str) -> dict[str, Any]:
    """What an option of the broker needs beside it."""
    if option.startswith("tls_") or option == "tls":
        return {"tls_cert": CERT, "tls_key": PRIVATE}
    return {"token_key": KEY} if option == "token_audience" else {}


def start(**options: Any) -> None:
    ports = {"port": 0, "mqtt_port": 0, "tubemq_port": 0}
    with forebay.Broker(**ports | options):
        pass


@pytest.mark.parametrize(("option", "form"), DOORS["broker"].items())
def test_the_broker_refuses_what_is_no_value(option: str, form: str, tmp_path: Path) -> None:
    beside = with_certificate(option)
    assert judged(form, option, values(form, tmp_path), lambda value: start(**beside | {option: value})) == ""


@pytest.mark.parametrize(("option", "form"), DOORS["listener"].items())
def test_a_listener_refuses_what_is_no_value(option: str, form: str, tmp_path: Path) -> None:
    beside: dict[str, Any] = (
        {"unix": str(tmp_path / "socket")} if option == "mode" else with_certificate(option)
    )

    def listen(value: Any) -> None:
        with forebay.Broker(listeners=[{"protocol": "mqtt", **beside, option: value}]):
            pass

    assert judged(form, option, values(form, tmp_path), listen) == ""


def texts(form: str, folder: Path) -> dict[str, str]:
    """The values that are refused, and that the environment and files can have; of the files with wrong
    contents, which are the same ones, one that is empty."""
    return {
        name: value
        for name, (value,) in values(form, folder).items()
        if isinstance(value, str) and name not in ACCEPTED.get(form, ()) and "\0" not in value
        if form not in GOOD or name == "empty" or name in places(form, folder)
    }


@pytest.mark.parametrize(("option", "form"), DOORS["broker"].items())
def test_the_environment_opens_no_other_doors(option: str, form: str, tmp_path: Path) -> None:
    beside = {name: tmp_path / f"{name}.pem" for name in with_certificate(option)}
    for name, path in beside.items():
        path.write_bytes(with_certificate(option)[name])
        path.chmod(0o600)
    there = {f"FOREBAY_BROKER_{name.upper()}": f"file:{path}" for name, path in beside.items()}
    there |= {f"FOREBAY_BROKER_{name}": "0" for name in ("PORT", "MQTT_PORT", "TUBEMQ_PORT")}
    for name, value in texts(form, tmp_path).items():
        # A broker that starts nevertheless ends at once.
        with mock.patch("signal.sigwait", return_value=signal.SIGTERM):
            done = ended("broker", "--quiet", env=there | {f"FOREBAY_BROKER_{option.upper()}": value})
        assert done.status == 2, (name, done)
        said = done.err.replace(f"FOREBAY_BROKER_{option.upper()}", option)
        assert named(errors.InvalidArgument, said, option) == "refused", name


@pytest.mark.parametrize(
    ("option", "form"), [(name, form) for name, form in DOORS["broker"].items() if name != "listeners"]
)
def test_a_configuration_opens_no_other_doors(option: str, form: str, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    beside = "".join(f"{name} = '''\n{pem.decode()}'''\n" for name, pem in with_certificate(option).items())
    if option == "token_audience":
        beside = f'token_key = "{KEY.decode()}"\n'
    for name, value in texts(form, tmp_path).items():
        if "\udcff" in value:
            continue
        lines = [f"{one} = 0\n" for one in ("port", "mqtt_port", "tubemq_port") if one != option]
        lines.append("" if option in with_certificate(option) else beside)
        config.write_text("".join(lines) + f"{option} = {json.dumps(value)}\n", encoding="utf-8")
        came = verdict(lambda: forebay.Broker(config).stop(), option)
        assert came == "refused", (name, value)


def connect(server: Server, protocol: str, option: str, value: Any) -> None:
    """Connects with a value, and with what else the option needs."""
    secure = option.startswith("tls_")
    url = (server.secure if secure else server.plain).urls[protocol]
    beside: dict[str, Any] = {"tls_ca": CA.pem} if secure and option != "tls_pin" else {}
    if secure and (option in ("tls_cert", "tls_key") or protocol == "tubemq"):
        beside |= {"tls_cert": CERT, "tls_key": PRIVATE}
    match option:
        case "username":
            beside = {"password": "x"}
        case "password":
            beside = {"username": "till"}
        case "basic_method":
            beside = {"username": "till", "password": "x"}
        case "ws_headers" | "ws_query":
            url = server.plain.urls["mqtt_ws"]
        case "authentication_method":
            beside = {"authenticator": lambda data: data}
        case "authenticator":
            beside = {"authentication_method": "X"}
        case _:
            pass
    with blocking.connect(url, **beside | {option: value}):
        pass


@pytest.mark.parametrize(
    ("protocol", "option", "form"),
    [(key, option, form) for key in protocols.PROTOCOLS for option, form in DOORS[f"{key}.client"].items()],
)
def test_a_client_refuses_what_is_no_value(
    protocol: str, option: str, form: str, server: Server, tmp_path: Path
) -> None:
    assert (
        judged(form, option, values(form, tmp_path), lambda value: connect(server, protocol, option, value))
        == ""
    )


def suppliers() -> dict[str, Callable[[], Any]]:
    """Functions that supply no secret."""

    def raises(error: Exception) -> Callable[[], Any]:
        def supply() -> Any:
            raise error

        return supply

    class Refused:
        """One that wants to know what a broker refused."""

        def __call__(self) -> Any:
            raise ValueError("pass word")

        def refused(self, secret: str) -> None:
            pass

    values: dict[str, Any] = {
        "empty": "", "no bytes": b"", "white space": " \n", "nothing": None, "a number": 7, "a list": ["a"],
        "half a character": "\udcff",
    }  # fmt: skip
    return {
        "raises": raises(ValueError("pass word")),
        "raises an error of ours": raises(errors.Timeout("the vault is sealed")),
        "raises, and is told": Refused(),
        **{name: lambda value=value: value for name, value in values.items()},
    }


@pytest.mark.parametrize(
    ("protocol", "option"),
    [
        *(("pulsar", "token"), ("pulsar", "password"), ("mqtt", "password"), ("mqtt", "ws_query")),
        *(("mqtt", "authenticator"), ("tubemq", "password")),
    ],
)
def test_a_function_that_supplies_no_secret_is_named(server: Server, protocol: str, option: str) -> None:
    url = server.plain.urls["mqtt_ws" if option == "ws_query" else protocol]
    beside: dict[str, Any] = {
        "password": {"username": "till"},
        "authenticator": {"authentication_method": "X"},
    }
    for name, supply in suppliers().items():
        value = supply if option != "authenticator" else lambda data, supply=supply: supply()
        if option == "authenticator" and name in ("no bytes", "nothing"):
            # These are steps of an authentication.
            continue
        with pytest.raises(errors.AuthenticationError) as caught:
            sent(url, **beside.get(option, {}) | {option: value})
        said = str(caught.value)
        assert f"the function for {option} " in said and "pass word" not in said, (name, said)
        assert "the vault is sealed" in said or name != "raises an error of ours", said


@pytest.mark.parametrize(
    ("side", "option"),
    [
        *(("broker", option) for option in ("tls_cert", "tls_key", "tls_client_ca")),
        *(("client", option) for option in ("tls_cert", "tls_key", "tls_ca")),
    ],
)
@pytest.mark.parametrize("name", ["damaged base64", "no last line", "no certificate", "another private key"])
def test_an_error_of_a_certificate_names_its_file(
    server: Server, tmp_path: Path, side: str, option: str, name: str
) -> None:
    form = "private key" if option == "tls_key" else "certificate"
    path = tmp_path / "file.pem"
    path.write_bytes((contents(form) | {"no certificate": NO_DER})[name])
    if name == "another private key" and option != "tls_key":
        path.write_bytes(NO_DER + CERT)

    with pytest.raises(errors.InvalidArgument) as caught:
        if side == "client":
            connect(server, "mqtt", option, path)
        else:
            beside: dict[str, Any] = {"tls_cert": CERT, "tls_key": PRIVATE} | {option: path}
            start(**beside)
    said = str(caught.value)
    assert f"{option} ({path})" in said, said
    # No list of bytes.
    assert "[" not in said, said


# -------------------------------------------------------------------------------- beside


def test_an_empty_file_admits_no_client(tmp_path: Path) -> None:
    for content in (contents("MQTT users")[name] for name in _NOBODY):
        (tmp_path / "file").write_bytes(content)
        users = {"mqtt_password_file": tmp_path / "file", "tubemq_user_file": tmp_path / "file"}
        with forebay.Broker(mqtt_port=0, tubemq_port=0, **users) as broker:
            for protocol in ("mqtt", "tubemq"):
                for beside in ({}, {"username": "till", "password": "one"}):
                    with pytest.raises((errors.AuthenticationError, errors.AuthorizationError)):
                        sent(broker.urls[protocol], **beside)
        with forebay.Broker(mqtt_port=0, acl_file=tmp_path / "file") as broker:
            for protocol in ("pulsar", "mqtt"):
                with pytest.raises(errors.AuthorizationError):
                    sent(broker.urls[protocol])


def sent(url: str, **options: Any) -> None:
    with blocking.connect(url, **options) as client, client.producer("orders") as producer:
        producer.send(b"x")


TLS: dict[str, Any] = {
    "tls_ca": CA.pem,
    "tls_cert": CLIENT_CERT,
    "tls_key": CLIENT_PRIVATE,
    "tls_pin": PIN,
    "tls_skip_hostname_check": True,
}


@pytest.mark.parametrize("protocol", [*protocols.PROTOCOLS, "mqtt_ws", "unix", "embedded", "http"])
def test_options_of_tls_need_tls(protocol: str, server: Server, tmp_path: Path) -> None:
    url = {"unix": "mqtt+unix:/tmp/socket", "embedded": "embedded:", "http": "http://127.0.0.1:1"}.get(
        protocol
    )
    url = url or server.plain.urls[protocol]
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    for option, value in TLS.items():
        with pytest.raises(errors.InvalidArgument, match=f"{option} needs TLS"):
            blocking.connect(url, **{option: value})
    for option, text in (("tls_ca", tmp_path / "ca.pem"), ("tls_pin", PIN)):
        with pytest.raises(errors.InvalidArgument, match=f"{option} needs TLS"):
            blocking.connect(f"{url}?{option}={text}")


def test_options_of_tls_in_the_environment_are_for_the_clients_that_use_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_bytes(CA.pem)
    monkeypatch.setenv("FOREBAY_TLS_CA", str(tmp_path / "ca.pem"))
    for broker in server:
        with blocking.connect(broker.urls["mqtt"], tls_skip_hostname_check=False):
            pass


def test_an_empty_variable_is_no_value() -> None:
    for option in ("token_key", "acl_file", "mqtt_password_file", "tls_client_ca", "allow_anonymous"):
        done = ended("broker", env={f"FOREBAY_BROKER_{option.upper()}": ""})
        assert done.status == 2, option
        assert f"environment variable FOREBAY_BROKER_{option.upper()} is empty" in done.err


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
def test_the_environment_of_a_client_opens_no_other_doors(
    protocol: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for option, form in DOORS[f"{protocol}.client"].items():
        # A file of an authority of others is refused by the handshake.
        wrong = {
            name: text for name, text in texts(form, tmp_path).items() if (option, name) not in UNTRUSTED
        }
        for name, value in wrong.items():
            if not value:
                # As if it were not set: a client says less then, and trusts no one else.
                continue
            with monkeypatch.context() as patch:
                patch.setenv(f"FOREBAY_{option.upper()}", value)
                came = verdict(lambda option=option: connect(server, protocol, option, None), option)
            assert came == "refused", (option, name, value)
