"""``forebay token``, with the embedded broker as the one who takes or refuses its tokens."""

from __future__ import annotations

import base64
import hmac
import io
import json
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

import forebay
from forebay import blocking, cli, errors
from forebay.commands.pulsar import jwt

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, status: int = 0) -> str:
        assert cli.main(["token", *words]) == status
        said = capsys.readouterr()
        return said.err if status and not said.out else said.out

    return run


@pytest.fixture
def key(tmp_path: Path, run: Run) -> str:
    run("create-key", str(tmp_path / "key"))
    return f"file:{tmp_path / 'key'}"


def test_a_key_is_new_and_its_owners_alone(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "key"
    assert run("create-key", str(path)) == ""
    content = path.read_bytes()
    assert len(content) == 32 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "is not overwritten" in run("create-key", str(path), status=1)
    assert path.read_bytes() == content
    assert json.loads(run("create-key", str(tmp_path / "two"), "--json"))["bytes"] == 32
    assert (tmp_path / "two").read_bytes() != content
    assert "cannot write" in run("create-key", str(tmp_path / "no" / "key"), status=1)


def test_the_broker_takes_the_tokens(key: str, run: Run) -> None:
    token = run("create", "--key", key, "--subject", "till", "--expires", "1h").strip()
    soon = run("create", "--key", key, "--subject", "till", "--not-before", "1h").strip()
    with forebay.Broker(token_key=key) as broker:
        with blocking.connect(broker.url, token=token) as client, client.producer("orders") as producer:
            producer.send(b"a book")
        for wrong in (soon, token[:-4] + "AAAA"):
            with pytest.raises(errors.AuthenticationError):
                blocking.connect(broker.url, token=wrong)
    show = json.loads(run("show", token, "--key", key, "--json"))
    assert show["signature"] is True and show["problems"] == []
    assert show["claims"]["exp"] == pytest.approx(time.time() + 3600, abs=30)
    assert "is not valid yet" in run("show", soon, "--key", key, status=1)
    assert "signature:  wrong" in run("show", token[:-4] + "AAAA", "--key", key, status=1)


def test_a_key_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNS", "a secret of 32 bytes and more ...")
    token = run("create", "--key", "env:SIGNS", "--subject", "till").strip()
    with (
        forebay.Broker(token_key="env:SIGNS") as broker,
        blocking.connect(broker.url, token=token) as client,
    ):
        client.producer("orders").close()


def test_a_token_goes_into_a_file_and_comes_from_anywhere(
    key: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    create = ("create", "--key", key, "--subject", "till", "--output", str(path))
    said = json.loads(run(*create, "--json"))
    assert said["file"] == str(path) and said["claims"]["sub"] == "till"
    token = path.read_text().strip()
    assert token not in json.dumps(said) and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "is not overwritten" in run(*create, status=1)
    monkeypatch.setenv("TOKEN", token)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    shown = [run("show", source, "--key", key) for source in (token, f"file:{path}", "env:TOKEN", "-")]
    assert len(set(shown)) == 1 and "subject:    till" in shown[0] and "verdict:    valid\n" in shown[0]


def test_the_token_of_the_standard(run: Run, tmp_path: Path) -> None:
    """RFC 7515, A.1: somebody else's token, key and signature."""
    secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
    (tmp_path / "key").write_bytes(base64.urlsafe_b64decode(secret + "=="))
    token = (
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6"
        "Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    )
    shown = json.loads(run("show", token, "--key", f"file:{tmp_path / 'key'}", "--json", status=1))
    assert shown["signature"] is True
    assert shown["claims"] == {"iss": "joe", "exp": 1300819380, "http://example.com/is_root": True}
    assert shown["problems"] == ["it has no subject (sub)", "it has expired"]
    text = run("show", token, status=1)
    assert "expires:    2011-03-22 18:43:00+00:00" in text and "not checked: give --key" in text


def token_of(claims: Any, header: Any = None, key: bytes = b"0123456789abcdef") -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    signed = f"{part(header or {'alg': 'HS256'})}.{part(claims)}"
    return f"{signed}.{jwt.sign(key, {}).rpartition('.')[2]}"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (token_of({"sub": "a"}, {"alg": "none"}), "takes HS256, RS256, ES256 only"),
        (token_of({"sub": "a"}, {"alg": ["HS256"]}), "takes HS256, RS256, ES256 only"),
        (token_of({"sub": 7}), "it has no subject"),
        (token_of({"sub": "a", "exp": "soon"}), "not a number of seconds"),
        (token_of({"sub": "a", "nbf": True}), "not a number of seconds"),
        (token_of({"sub": "a", "exp": 1e300}), "not a number of seconds"),
        (token_of(["sub"]), "not a JSON object"),
        ("a.b", "three parts"),
        ("ä.b.c", "ASCII"),
        ("!.b.c", "header of the token is not base64url"),
        ("e30.e31.", "claims of the token is not base64url"),
        (token_of({"sub": "a"}) + "=", "signature of the token is not base64url"),
        ("Zm9v.Zm9v.Zm9v", "not JSON"),
        (base64.urlsafe_b64encode(b"[" * 30_000).decode().rstrip("=") + ".e30.", "not JSON"),
        ("a" * 70_000, "at most 65536 bytes"),
        ("file:/no/such/token", "cannot read"),
    ],
)
def test_what_is_wrong_with_a_token(token: str, said: str, run: Run) -> None:
    assert said in run("show", token, status=1)


def test_a_file_is_not_taken_for_a_token(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "till.token"
    path.write_text(token_of({"sub": "till"}))
    assert f"file:{path} reads it" in run("show", str(path), status=2)
    assert "subject:    till" in run("show", f"file:{path}")
    assert "NO_SUCH_TOKEN is not set" in run("show", "env:NO_SUCH_TOKEN", status=2)


def test_what_a_token_says_cannot_drive_the_terminal(run: Run) -> None:
    assert "\x1b" not in run("show", token_of({"sub": "a\x1b[2J"}))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key", "the key itself", "--subject", "a"), "every user of this machine"),
        (("--key", "env:NO_SUCH_KEY", "--subject", "a"), "NO_SUCH_KEY is not set"),
        (("--key", "KEY", "--subject", ""), "--subject is empty"),
        (("--key", "KEY", "--subject", "a", "--expires", "soon"), "--expires: expected a duration"),
        (("--key", "KEY", "--subject", "a", "--expires", "0"), "would never be valid"),
        (("--key", "KEY", "--subject", "a", "--expires", "1h", "--not-before", "2h"), "would never be valid"),
        (("--key", "SHORT", "--subject", "a"), "15 bytes"),
    ],
)
def test_tokens_that_are_not_made(
    words: tuple[str, ...], said: str, key: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "short").write_bytes(b"x" * 15)
    names = {"KEY": key, "SHORT": f"file:{tmp_path / 'short'}"}
    assert said in run("create", *(names.get(word, word) for word in words), status=2)


def test_nothing_secret_is_said(key: str, tmp_path: Path) -> None:
    secret = Path(key.removeprefix("file:")).read_bytes()
    words = [sys.executable, "-m", "forebay", "token"]
    token = subprocess.check_output([*words, "create", "--key", key, "--subject", "till"], timeout=300)
    done = subprocess.run([*words, "show", "-", "--key", key], input=token, capture_output=True, timeout=300)
    said = done.stdout + done.stderr
    assert done.returncode == 0
    assert token.rpartition(b".")[2].strip() not in said
    for shown in (secret, secret.hex().encode(), base64.b64encode(secret)):
        assert shown not in said + token


def test_a_token_for_an_audience(key: str, run: Run) -> None:
    words = ("create", "--key", key, "--subject", "till")
    token, plain = run(*words, "--audience", "orders").strip(), run(*words).strip()
    assert "audience:   orders" in run("show", token, "--key", key, "--audience", "orders")
    assert "it is for an audience (aud)" in run("show", token, "--key", key, status=1)
    assert "it is not for the audience 'mail'" in run(
        "show", plain, "--key", key, "--audience", "mail", status=1
    )
    for audience, good, bad in [("orders", token, plain), (None, plain, token)]:
        options = {"token_key": key} | ({"token_audience": audience} if audience else {})
        with forebay.Broker(**options) as broker:
            blocking.connect(broker.url, token=good).close()
            with pytest.raises(errors.AuthenticationError):
                blocking.connect(broker.url, token=bad)


def test_random_bytes_may_begin_as_json_does(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"{" + bytes(range(0x80, 0xA0)))
    token = run("create", "--key", f"file:{path}", "--subject", "till").strip()
    with forebay.Broker(token_key=f"file:{path}") as broker:
        blocking.connect(broker.url, token=token).close()


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str) -> str:
    """A token of an issuer elsewhere."""
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    parts = ({"alg": algorithm, "kid": kid}, {"sub": "till"})
    text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32) + s.to_bytes(32)
    return f"{text}.{encoded(signature)}"


def jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str) -> dict[str, str]:
    if isinstance(key, rsa.RSAPrivateKey):
        n, e = key.public_key().public_numbers().n, key.public_key().public_numbers().e
        return {"kty": "RSA", "kid": kid, "n": encoded(n.to_bytes(256)), "e": encoded(e.to_bytes(3))}
    at = key.public_key().public_numbers()
    x, y = encoded(at.x.to_bytes(32)), encoded(at.y.to_bytes(32))
    return {"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y}


@pytest.mark.parametrize(
    "before", [b"# issuer.example, 2026\n", b"\xef\xbb\xbf", b"Public-Key: (2048 bit)\n"]
)
def test_a_public_key_behind_other_text_signs_nothing(before: bytes, tmp_path: Path, run: Run) -> None:
    """The file is public: whoever has it could sign tokens of any user, if it were taken for a secret."""
    issuer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = tmp_path / "keys"
    path.write_bytes(
        before
        + issuer.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    text = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": "root"}))
    forged = f"{text}.{encoded(hmac.digest(path.read_bytes(), text.encode(), 'sha256'))}"
    with forebay.Broker(token_key=f"file:{path}") as broker:
        with pytest.raises(errors.AuthenticationError):
            blocking.connect(broker.url, token=forged)
        blocking.connect(broker.url, token=signed(issuer, "1")).close()
    assert "public keys" in run("create", "--key", f"file:{path}", "--subject", "root", status=2)


def test_keys_of_an_issuer_are_changed_by_their_names(tmp_path: Path, run: Run) -> None:
    """With keys and signatures of the package cryptography, as PEM and as a set of JSON Web Keys."""
    old = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    new = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "keys"
    path.write_bytes(
        old.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    with forebay.Broker(token_key=f"file:{path}") as broker:

        def takes(token: str) -> bool:
            try:
                blocking.connect(broker.url, token=token).close()
            except errors.AuthenticationError:
                return False
            return True

        assert takes(signed(old, "1"))
        assert not takes(signed(new, "2"))
        path.write_text(json.dumps({"keys": [jwk(old, "1"), jwk(new, "2")]}))
        assert broker.reload_keys() == {"certificates": 0, "token_keys": 2}
        assert takes(signed(old, "1"))
        assert takes(signed(new, "2"))
        assert not takes(signed(new, "1"))
        assert "valid" in run("show", signed(new, "2"), "--key", f"file:{path}")
        path.write_text(json.dumps({"keys": [jwk(new, "2")]}))
        broker.reload_keys()
        assert not takes(signed(old, "1"))
        assert takes(signed(new, "2"))
        assert "public keys" in run("create", "--key", f"file:{path}", "--subject", "x", status=2)
