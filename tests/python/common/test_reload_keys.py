"""Certificates and token keys that are replaced while the broker runs."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import blocking, cli, errors

from support.certificates import Authority
from support.waiting import PATIENCE, line_with


class Files:
    """The files of a certificate and of a token key."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.token_key = (folder / name for name in ("crt", "key", "token.key"))
        self.authority = self.renew()
        self.token_key.write_bytes(b"0123456789abcdef0123456789abcdef")
        self.token_key.chmod(0o600)

    def renew(self) -> Authority:
        """Another certificate, of another authority."""
        self.authority = Authority()
        certificate, key = self.authority.leaf()
        self.certificate.write_bytes(certificate)
        self.key.write_bytes(key)
        self.key.chmod(0o600)
        return self.authority

    def token(self, folder: Path, user: str) -> str:
        """A token that is signed with the present key."""
        path = folder / f"{user}.token"
        words = (
            "token",
            "create",
            "--subject",
            user,
            "--key",
            f"file:{self.token_key}",
            "--output",
            str(path),
        )
        assert cli.main(words) == 0
        return path.read_text().strip()

    @property
    def options(self) -> dict[str, Any]:
        return {
            "tls_cert": str(self.certificate),
            "tls_key": str(self.key),
            "token_key": f"file:{self.token_key}",
        }


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def works(client: blocking.Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.send(b"x")


def test_new_connections_get_the_new_certificates_and_open_ones_stay(files: Files, tmp_path: Path) -> None:
    token, old = files.token(tmp_path, "till"), files.authority.pem
    mine = Authority()
    certificate, key = mine.leaf()
    listeners = [
        {"protocol": "mqtt", "port": 0, "tls_cert": certificate, "tls_key": key},
        {"protocol": "http", "port": 0},
    ]
    with forebay.Broker(**files.options, port=0, mqtt_port=0, listeners=listeners) as broker:
        options = {"token": token, "operation_timeout": PATIENCE}
        with blocking.connect(broker.url, tls_ca=old, **options) as before:
            works(before, "a")
            new = files.renew().pem
            # Nothing is replaced before it is asked for.
            with blocking.connect(broker.url, tls_ca=old, **options) as client:
                works(client, "a")
            assert broker.reload_keys() == {"certificates": 4, "token_keys": 1}
            works(before, "a")
            with blocking.connect(broker.url, tls_ca=new, **options) as client:
                works(client, "a")
            with pytest.raises(errors.Error, match="certificate"):
                blocking.connect(broker.url, tls_ca=old, **options)
        # That of a listener, which is no file, is what it was.
        own = next(url for url in broker.all_urls[2:] if url.startswith("mqtts:"))
        with blocking.connect(own, tls_ca=mine.pem, username="till", password=token) as client:
            with client.producer("b", qos=1) as producer:
                producer.send(b"x")


def test_new_tokens_need_the_new_key_and_open_connections_stay(files: Files, tmp_path: Path) -> None:
    old = files.token(tmp_path, "till")
    options = {"tls_ca": files.authority.pem, "operation_timeout": PATIENCE}
    with forebay.Broker(**files.options, http_port=0) as broker:
        with blocking.connect(broker.url, token=old, **options) as before:
            works(before, "a")
            files.token_key.write_bytes(b"another key, as long as the first")
            broker.reload_keys()
            works(before, "b")
            with pytest.raises(errors.AuthenticationError):
                blocking.connect(broker.url, token=old, **options)
            new = files.token(tmp_path, "anna")
            with blocking.connect(broker.url, token=new, **options) as client:
                works(client, "a")


@pytest.mark.parametrize("fault", ["no file", "no PEM", "another key", "short token key"])
def test_a_mistake_leaves_everything_as_it_was(files: Files, tmp_path: Path, fault: str) -> None:
    old, token = files.authority.pem, files.token(tmp_path, "till")
    with forebay.Broker(**files.options) as broker:
        if fault == "short token key":
            # The certificate, which is good, is not replaced either.
            files.renew()
            files.token_key.write_bytes(b"short")
        elif fault == "no file":
            files.certificate.unlink()
        elif fault == "no PEM":
            files.key.write_bytes(b"key")
        else:
            files.key.write_bytes(Authority().leaf()[1])
        with pytest.raises(errors.InvalidArgument, match=r"tls_|token_key|crt|PEM|key"):
            broker.reload_keys()
        with blocking.connect(broker.url, tls_ca=old, token=token) as client:
            works(client, "a")


def test_a_broker_without_any_has_nothing_to_read() -> None:
    with forebay.Broker() as broker:
        assert broker.reload_keys() == {"certificates": 0, "token_keys": 0}
    with pytest.raises(errors.Closed):
        broker.reload_keys()


def test_sighup_reads_them_again(files: Files) -> None:
    command = [sys.executable, "-m", "forebay", "broker", "--json"]
    for name, value in files.options.items():
        command += [f"--{name.replace('_', '-')}", value]
    with subprocess.Popen(
        [*command, "--port", "0", "--http-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout and broker.stderr
        try:
            said = json.loads(broker.stdout.readline())
            new = files.renew()
            broker.send_signal(signal.SIGHUP)
            assert line_with("SIGHUP: read again: 2 certificates, 1 token keys", broker.stderr)
            context = ssl.create_default_context(cadata=new.pem.decode())
            with urllib.request.urlopen(
                said["http_url"] + "/healthz", timeout=PATIENCE, context=context
            ) as answer:
                assert answer.status == 200
            files.key.unlink()
            broker.send_signal(signal.SIGHUP)
            assert line_with("the former certificates and token keys stay", broker.stderr)
        finally:
            broker.terminate()
