"""The embedded broker as a service: the unit for systemd, and a start in a bare root folder."""

from __future__ import annotations

import configparser
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

import forebay
from forebay import blocking

from support.certificates import Authority
from support.scripts import free_port
from support.tokens import KEY, token
from support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
SERVICE = ROOT / "examples" / "service"
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
LAN = (ROOT / "docs" / "guides" / "lan.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["forebay.service", "sysusers.conf", "Containerfile", "compose.yaml"])
def test_the_docs_show_the_files_as_they_are(name: str) -> None:
    assert (SERVICE / name).read_text() in DEPLOYMENT


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """It checks that the program is there, so the unit gets one that is."""
    unit = (SERVICE / "forebay.service").read_text()
    program = Path(sys.executable).with_name("forebay")
    path = tmp_path / "forebay.service"
    path.write_text(unit.replace("/opt/app/bin/forebay", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=PATIENCE
    )
    said = [line for line in done.stderr.splitlines() if str(path) in line or "forebay.service" in line]
    assert done.returncode == 0 and not said, done.stderr


def test_systemd_refuses_a_wrong_unit(tmp_path: Path) -> None:
    """The check above can fail."""
    path = tmp_path / "forebay.service"
    path.write_text("[Service]\nType=notifyy\nExecStart=/none\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert "notifyy" in done.stderr


def section(name: str) -> dict[str, str]:
    """The settings of a section of the unit."""
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read(SERVICE / "forebay.service")
    return dict(parser[name])


def test_the_unit_has_a_user_that_can_own_files(tmp_path: Path) -> None:
    """systemd makes the user, and the docs give it the files that the unit reads."""
    service = section("Service")
    assert "DynamicUser" not in service
    assert service["Type"] == "notify"
    (tmp_path / "etc").mkdir()
    subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", str(SERVICE / "sysusers.conf")],
        check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    users = [line.split(":") for line in (tmp_path / "etc" / "passwd").read_text().splitlines()]
    assert [(user[0], user[5]) for user in users] == [(service["User"], "/var/lib/forebay")]
    assert (tmp_path / "etc" / "group").read_text().startswith(f"{service['Group']}:")
    config = Path(service["ExecStart"].split()[3])
    chown = f"chown -R {service['User']}:{service['Group']} {config.parent}"
    for page in (DEPLOYMENT, LAN):
        assert chown in page


def test_the_example_for_compose_fits_the_recipe_and_the_guide() -> None:
    """Ports and folders are those of the image and of docs/guides/lan.md."""
    compose = yaml.safe_load((SERVICE / "compose.yaml").read_text())
    (service,) = compose["services"].values()
    assert (SERVICE / service["build"] / "Containerfile").is_file()
    said = instructions()
    listeners = tomllib.loads(titled("broker.toml"))["listener"]
    assert service["ports"] == [f"{one['port']}:{one['port']}" for one in sorted(listeners, key=order)]
    words = entry_point()
    config, data = (Path(words[words.index(flag) + 1]) for flag in ("--config", "--data"))
    assert said["VOLUME"] == str(data)
    assert said["WORKDIR"] == str(config.parent)
    (name,) = compose["volumes"]
    assert service["volumes"] == [f"./:{config.parent}:ro", f"{name}:{data}"]
    # The recipe's, which asks the listener for HTTP.
    assert "healthcheck" not in service
    assert "READY_URL" in said["HEALTHCHECK"]
    (http,) = (one["port"] for one in listeners if one["protocol"] == "http")
    assert said["ENV"] == f"READY_URL=https://127.0.0.1:{http}/readyz"
    assert service["stop_grace_period"] == f"{section('Service')['TimeoutStopSec']}s"
    assert said["STOPSIGNAL"] == "SIGTERM"
    user = said["USER"].partition(":")[0]
    assert f"chown -R {user} ." in (SERVICE / "compose.yaml").read_text()
    assert f"install -d -o {user} " in said["RUN"]


def order(listener: dict[str, Any]) -> int:
    """Pulsar, MQTT, HTTP, as in the guide."""
    return ("pulsar", "mqtt", "http").index(listener["protocol"])


def test_the_configuration_of_prometheus_fits_the_guide() -> None:
    (job,) = yaml.safe_load(fenced("yaml"))["scrape_configs"]
    (target,) = (target for one in job["static_configs"] for target in one["targets"])
    host, _, port = target.partition(":")
    (http,) = (
        one["port"] for one in tomllib.loads(titled("broker.toml"))["listener"] if one["protocol"] == "http"
    )
    assert int(port) == http
    assert f"subjectAltName=DNS:{host}" in LAN
    assert job["scheme"] == "https"
    for path in (job["tls_config"]["ca_file"], job["authorization"]["credentials_file"]):
        assert re.search(rf"(-out|--output) {re.escape(Path(path).name)}\b", LAN), path
    # Prometheus asks there by default.
    assert f"https://{target}/metrics" in LAN
    assert "metrics_path" not in job


def fenced(language: str) -> str:
    """The only block of the guide in a language."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", LAN, re.MULTILINE | re.DOTALL)
    return block


def titled(title: str) -> str:
    """The block of the guide with a title."""
    (block,) = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', LAN, re.MULTILINE | re.DOTALL)
    return block


def instructions() -> dict[str, str]:
    """Those of the Containerfile, each of which it has once."""
    text = (SERVICE / "Containerfile").read_text().replace("\\\n", " ")
    found = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    said = dict(found)
    assert len(said) == len(found)
    return said


def entry_point() -> list[str]:
    """What the Containerfile starts."""
    text = (SERVICE / "Containerfile").read_text()
    words = [re.search(rf"^{name} \[(.*)\]$", text, re.MULTILINE) for name in ("ENTRYPOINT", "CMD")]
    return [word for found in words if found for word in re.findall(r'"([^"]*)"', found[1])]


@pytest.fixture
def bare(tmp_path: Path) -> list[str]:
    """The command that runs another one in a root folder of its own, which is read-only but for the store.

    There is no home, no list of users, no /proc and no place for temporary files; as root, the process is
    the user 10001 without any rights.
    """
    root, config, data = (tmp_path / name for name in ("root", "config", "data"))
    interpreter = Path(sysconfig.get_config_var("prefix")).resolve()
    needed = sorted(
        {Path("/usr"), interpreter, Path(sys.prefix), Path(forebay.__file__).resolve().parents[1]}
    )
    for folder in (config, data):
        folder.mkdir()
    for inside in ("dev", "etc/forebay", "var/lib/forebay", *(str(path).lstrip("/") for path in needed)):
        (root / inside).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    for name in ("null", "urandom"):
        (root / "dev" / name).touch()
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(data, 10001, 10001)
    lines = [
        "set -euo pipefail",
        f"root={root}",
        'mount --bind "$root" "$root"',
        *(f'mount --rbind {path} "$root{path}"' for path in needed),
        *(f'mount --bind /dev/{name} "$root/dev/{name}"' for name in ("null", "urandom")),
        f'mount --bind {config} "$root/etc/forebay"',
        f'mount --bind {data} "$root/var/lib/forebay"',
        'mount -o remount,bind,ro "$root"',
        f"exec env -i PATH={Path(sys.executable).parent}:/usr/bin:/usr/sbin"
        f' PYTHONPATH={Path(forebay.__file__).resolve().parents[1]} chroot "$root" "$@"',
    ]
    script = tmp_path / "bare.sh"
    script.write_text("\n".join(lines) + "\n")
    user = [
        "setpriv",
        "--reuid=10001",
        "--regid=10001",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]
    rights = [] if is_root else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--mount", "bash", str(script), *(user if is_root else [])]


@pytest.fixture
def guarded(bare: list[str], tmp_path: Path) -> tuple[Authority, dict[str, int]]:
    """The configuration of docs/guides/lan.md in the folder of :func:`bare`, in files that only the user of
    the broker can read, and the ports of its listeners."""
    config, authority = tmp_path / "config", Authority()
    chain, key = authority.leaf()
    text = titled("broker.toml").replace("0.0.0.0", "127.0.0.1")
    ports = {one["protocol"]: (one["port"], free_port()) for one in tomllib.loads(text)["listener"]}
    for former, port in ports.values():
        text = text.replace(f"port = {former}\n", f"port = {port}\n")
    files = {
        "broker.toml": text.encode(),
        "rules.acl": titled("rules.acl").encode(),
        "cert.pem": chain,
        "key.pem": key,
        "token.key": KEY,
        "users.txt": b"",
    }
    for name, content in files.items():
        (config / name).write_bytes(content)
    words = [sys.executable, "-m", "forebay", "passwd", str(config / "users.txt"), "till-7", "-b", "secret"]
    subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE)
    config.chmod(0o700)
    for name in files:
        (config / name).chmod(0o600)
    if os.geteuid() == 0:
        for path in (config, *config.iterdir()):
            os.chown(path, 10001, 10001)
    return authority, {protocol: port for protocol, (_, port) in ports.items()}


def test_it_starts_in_a_bare_root_folder(
    bare: list[str], guarded: tuple[Authority, dict[str, int]], tmp_path: Path
) -> None:
    authority, ports = guarded
    trusted = authority.pem.decode()
    context = ssl.create_default_context(cadata=trusted)
    for sent in (b"one", b"two"):
        with subprocess.Popen(
            [*bare, *entry_point()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as broker:
            assert broker.stdout and broker.stderr
            try:
                said = broker.stdout.readline()
                assert said.startswith("forebay broker at "), said + broker.stderr.read()
                url = f"https://127.0.0.1:{ports['http']}/readyz"
                with urllib.request.urlopen(url, timeout=PATIENCE, context=context) as answer:
                    assert json.load(answer) == {"ready": True, "store": "ok", "disk": "ok", "clock": "ok"}
                with (
                    blocking.connect(
                        f"pulsar+ssl://127.0.0.1:{ports['pulsar']}", token=token("billing"), tls_ca=trusted
                    ) as client,
                    client.producer("orders") as producer,
                ):
                    producer.send(sent)
                with blocking.connect(
                    f"mqtts://127.0.0.1:{ports['mqtt']}", username="till-7", password="secret", tls_ca=trusted
                ) as client:
                    client.publish("tills/till-7/state", sent, qos=1)
            finally:
                broker.send_signal(signal.SIGTERM)
                _, ended = broker.communicate(timeout=PATIENCE)
        assert broker.returncode == 0, ended
        assert "other users may read" not in ended
    with forebay.Broker(data=tmp_path / "data") as broker, blocking.connect(broker.url) as client:
        with client.reader("orders", position="earliest") as reader:
            assert [reader.receive(timeout=PATIENCE).data for _ in range(2)] == [b"one", b"two"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.usefixtures("guarded")
def test_it_needs_files_that_its_user_can_read(bare: list[str], tmp_path: Path) -> None:
    """Without the chown of the docs it names the file."""
    os.chown(tmp_path / "config" / "key.pem", 0, 0)
    done = subprocess.run([*bare, *entry_point()], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "cannot read /etc/forebay/key.pem: Permission denied" in done.stderr


def test_nothing_else_can_be_written_to(bare: list[str]) -> None:
    """The root folder of the test is what it is said to be."""
    words = [*bare, "/usr/bin/bash", "-c", "id -u; echo x > /dev/null; ls /proc; touch /tmp/x /etc/x /usr/x"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0
    assert done.stdout.split()[0] == ("10001" if os.geteuid() == 0 else "0")
    assert "'/proc': No such file" in done.stderr
    # There is a /tmp if the checkout is below it.
    assert done.stderr.count("cannot touch") == 3
