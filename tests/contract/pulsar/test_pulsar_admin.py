"""The real ``pulsar-admin`` command, by Pulsar's shell: what one script prints on the embedded broker and on
the real one."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from pathlib import Path

import pytest

from forebay import blocking

from support.messages import numbered
from support.pulsar.harness import EmbeddedPulsar, PulsarService, RealPulsar
from support.scripts import BROKERS, run_script
from support.waiting import PATIENCE

# The shell runs twice, for up to 300 s each time.
pytestmark = [pytest.mark.real_pulsar, pytest.mark.slow, pytest.mark.timeout(700)]

SAME = """
admin clusters list
admin clusters list -c
admin tenants get public
admin tenants get none
admin namespaces list public
admin namespaces list none
admin namespaces topics public/default
admin brokers healthcheck
admin topics create {t}
admin topics create {t}
admin topics create-partitioned-topic {p} -p 2
admin topics create-partitioned-topic {p} -p 2
admin topics create-partitioned-topic {p}-none -p 0
admin topics get-partitioned-topic-metadata {p}
admin topics get-partitioned-topic-metadata {t}
admin topics get-partitioned-topic-metadata {p}-none
admin topics list-partitioned-topics public/default
admin topics update-partitioned-topic {p} -p 3
admin topics update-partitioned-topic {t} -p 3
admin topics get-partitioned-topic-metadata {p}
admin topics list public/default
admin topics subscriptions {t}
admin topics create-subscription {t} -s s
admin topics create-subscription {t} -s s
admin topics create-subscription {t} -s e -m earliest
admin topics create-subscription {t} -s l -m latest
admin topics subscriptions {t}
admin topics create-subscription {p} -s s
admin topics subscriptions {p}
admin topics subscriptions {p}-partition-2
admin topics subscriptions {t}-none
admin topics terminate {t}-none
client produce {t} -m one,two,three,four
admin topics peek-messages {t} -s s -n 1
admin topics peek-messages {p} -s s -n 1
admin topics skip {t} -s s -n 1
admin topics peek-messages {t} -s s -n 1
admin topics skip {p} -s s -n 1
admin topics skip {t} -s none -n 1
admin topics clear-backlog {t} -s e
admin topics clear-backlog {p} -s s
admin topics clear-backlog {t} -s none
admin topics reset-cursor {t} -s s -t 1h
admin topics peek-messages {t} -s s -n 1
admin topics reset-cursor {t} -s s -m latest
admin topics reset-cursor {t} -s s -m earliest
admin topics reset-cursor {t} -s none -t 1h
admin topics reset-cursor {p} -s s -t 1h
admin topics reset-cursor {p} -s s -m earliest
admin topics last-message-id {t}
admin topics unsubscribe {t} -s e
admin topics unsubscribe {t} -s e
admin topics unsubscribe {p} -s s
admin topics subscriptions {t}
admin schemas get {t}
admin schemas delete {t}-other
admin topics create-subscription {m} -s s -m earliest
admin topics get-message-by-id {m} -l {ledger} -e 1
admin topics get-message-by-id {m} -l {ledger} -e 99
admin topics get-message-by-id {m} -l 123456789 -e 0
admin topics get-message-by-id {m}-none -l {ledger} -e 0
admin topics reset-cursor {m} -s s -m {ledger}:1
admin topics peek-messages {m} -s s -n 1
admin topics reset-cursor {m} -s s -m {ledger}:1 -e
admin topics peek-messages {m} -s s -n 1
admin topics reset-cursor {m} -s none -m {ledger}:1
admin topics reset-cursor {m} -s s -m one
admin topics create-subscription {m} -s o -m earliest
admin topics expire-messages {m} -s o -t 1s
admin topics expire-messages {m} -s none -t 1s
admin topics expire-messages {m}-none -s s -t 1s
admin topics unsubscribe {m} -s o
admin topics expire-messages-all-subscriptions {m} -t 1s
admin topics expire-messages-all-subscriptions {m}-none -t 1s
admin topics expire-messages {m} -s s -t 1h
admin schemas upload {m} -f {folder}/record.json
admin schemas upload {m} -f {folder}/grown.json
admin schemas upload {m} -f {folder}/other.json
admin schemas get {m}
admin schemas get {m} --version 0
admin schemas get {m} --version 1
admin schemas get {m} --version 9
admin schemas get {m} -a
admin schemas delete {m}
admin schemas get {m}
admin topics delete {m}
admin topics terminate {t}
admin topics terminate {p}
admin topics partitioned-terminate {p}
admin topics partitioned-terminate {t}
admin topics delete {p}
admin topics delete-partitioned-topic {t}
admin topics delete {t}
admin topics delete {t}
admin topics delete-partitioned-topic {p}
admin topics delete-partitioned-topic {p}
admin topics list public/default
"""
"""Commands whose output is compared. ``{m}`` has three messages."""

DIFFERENT = {
    # There is no schema to delete, which the real broker does all the same.
    "admin schemas delete {t}-other",
}

FIGURES = """
admin topics create {t}
admin topics create-subscription {t} -s s
admin topics stats {t}
admin topics stats-internal {t}
admin topics create-partitioned-topic {p} -p 2
admin topics partitioned-stats {p}
admin topics partitioned-stats {p} --per-partition
admin topics partitioned-stats-internal {p}
admin topics lookup {t}
admin brokers version
admin topics delete {t}
admin topics delete-partitioned-topic {p}
"""
"""Commands that print figures and addresses: they succeed."""


# What the shell's libraries log depends on how quick the machine is.
NOISE = re.compile(r"Broker entry|Goodbye|[A-Z][a-z]{2} \d+, \d{4} |INFO: |WARNING: ")


FIELDS = {
    "record": [{"name": "a", "type": "int"}],
    "grown": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}],
    "other": [{"name": "a", "type": "string"}],
}
"""Files with schemas of the script: the second may follow the first, and the third may not."""


def write_schemas(folder: Path) -> None:
    for name, fields in FIELDS.items():
        schema = json.dumps({"type": "record", "name": "R", "fields": fields})
        said = {"type": "AVRO", "schema": schema, "properties": {"owner": name}}
        (folder / f"{name}.json").write_text(json.dumps(said))


def fill(service: PulsarService, topic: str) -> int:
    """Sends three messages, each an entry; returns their ledger."""
    with (
        blocking.connect(service.url, connect_timeout=PATIENCE) as client,
        client.producer(topic, batching=False) as producer,
    ):
        ids = [producer.send(payload, properties={"a": "ü"}) for payload in numbered(3)]
    return ids[0].ledger


def play(service: PulsarService, script: str, folder: Path) -> list[str]:
    """The output of each command."""
    path, settings = folder / "script", folder / "client.conf"
    path.write_text(script.strip() + "\n")
    settings.write_text(f"webServiceUrl={service.admin}\nbrokerServiceUrl={service.url}\n")
    classes = run_script(str(BROKERS / "pulsar" / "fetch-pulsar"), timeout=900).strip()
    home = Path(classes.rpartition(":")[2]).parent
    opens = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("sun.net", "java.nio", "jdk.internal.misc")
    ]
    done = subprocess.run(
        [
            *(
                "java",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Xmx512m",
                *opens,
                "-cp",
                f"{home}/conf:{classes}",
            ),
            *(
                "-Dlog4j.configurationFile=log4j2.yaml",
                "-Dpulsar.log.level=off",
                "-Dpulsar.log.root.level=off",
            ),
            *(f"-Duser.home={folder}", f"-Dpulsar.shell.working.dir={folder}"),
            *("org.apache.pulsar.shell.PulsarShell", "-c", str(settings), "-f", str(path), "--no-progress"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    sections = re.split(r"^\[\d+/\d+\] Executing .*$", done.stdout, flags=re.MULTILINE)[1:]
    assert len(sections) == len(script.strip().splitlines()), done.stdout
    return sections


def normal(output: str, run: str) -> str:
    """Output without the numbers of ledgers and times, and of lists what belongs to this test.

    Without the commas at the ends of lines as well: the order of fields is that of Java's reflection and may
    change from one run to the next.
    """
    if "Reason:" in output:
        # The words may differ.
        return "refused"
    output = re.sub(r"\b\d+:(-?\d+)", r"L:\1", output)
    output = re.sub(r'("ledgerId" ?:|"timestamp" ?:|Publish time:) \d+', r"\1 N", output)
    lines = [line.rstrip(" ,") for line in output.splitlines() if not NOISE.match(line)]
    if any("://" in line for line in lines):
        lines = sorted(line for line in lines if run in line)
    return "\n".join(lines).strip()


def test_it_prints_the_same(embedded: EmbeddedPulsar, real_pulsar: RealPulsar, tmp_path: Path) -> None:
    run = uuid.uuid4().hex[:8]
    names = {name: f"persistent://public/default/{name}-{run}" for name in "tpm"} | {"folder": str(tmp_path)}
    script = SAME.strip()
    write_schemas(tmp_path)
    ours, real = (
        play(service, script.format(**names, ledger=fill(service, names["m"])), tmp_path)
        for service in (embedded, real_pulsar)
    )
    assert len(ours) > 60
    apart: list[tuple[str, str, str]] = []
    for command, one, other in zip(script.splitlines(), ours, real, strict=True):
        if command.startswith("client"):
            # It prints warnings alone. Its messages are looked at by the next commands.
            continue
        prints, should = (sorted(normal(text, run).splitlines()) for text in (one, other))
        if (prints == should) == (command in DIFFERENT):
            apart.append((command, one, other))
    assert not apart, "\n".join(f"{command}\nours: {one}\nreal: {other}" for command, one, other in apart)


def test_it_reads_the_figures(embedded: EmbeddedPulsar, tmp_path: Path) -> None:
    run = uuid.uuid4().hex[:8]
    script = FIGURES.strip().format(
        t=f"persistent://public/default/t-{run}", p=f"persistent://public/default/p-{run}"
    )
    for command, output in zip(script.splitlines(), play(embedded, script, tmp_path), strict=True):
        assert "Reason:" not in output, f"{command}: {output}"
        assert "Exception" not in output, f"{command}: {output}"
