"""Defaults of options: Python's tables are the source, and those of the Rust structs are equal to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from forebay._core import protocols

SOURCE = Path(__file__).parents[3] / "src"
PLACES = {
    ("client/pulsar", "ClientOptions"): ("pulsar.client", ""),
    ("client/pulsar", "ProducerOptions"): ("pulsar.producer", ""),
    ("client/pulsar", "ConsumerOptions"): ("pulsar.consumer", ""),
    ("client/mqtt", "ClientOptions"): ("mqtt.client", ""),
    ("client/mqtt", "ProducerOptions"): ("mqtt.producer", ""),
    ("client/tubemq", "ClientOptions"): ("tubemq.client", ""),
    ("client/tubemq", "ProducerOptions"): ("tubemq.producer", ""),
    ("client/tubemq", "ConsumerOptions"): ("tubemq.consumer", ""),
    ("broker", "Options"): ("broker", ""),
    ("broker/pulsar", "PulsarOptions"): ("broker", ""),
    ("broker/mqtt", "Limits"): ("broker", "mqtt_"),
    ("broker/tubemq", "TubeMqOptions"): ("broker", "tubemq_"),
}
"""Folder and struct -> table, and what the names of the struct's fields have before them there."""
OTHER_ON_PURPOSE = {
    ("broker", "durability"): "Python's default depends on `data`",
    ("mqtt.client", "session_expiry"): "Python's default depends on `clean_start`",
}
ELSEWHERE = {
    ("broker", "allow_anonymous"),
    ("broker", "host"),
    ("mqtt.client", "outbox_limit"),
    ("mqtt.client", "request_response_information"),
    ("mqtt.consumer", "auto_ack"),
    ("mqtt.consumer", "no_local"),
    ("mqtt.consumer", "qos"),
    ("mqtt.consumer", "retain_as_published"),
    ("mqtt.consumer", "retain_handling"),
    ("pulsar.consumer", "type"),
    ("tubemq.consumer", "position"),
}
"""Options that Rust has under another name, or in a type without defaults."""
UNITS = {"secs": 1.0, "millis": 0.001}
WORDS = {
    "JavaStringHash": "java",
    "V5": "5",
    "AtLeastOnce": 1,
    "u32::MAX": None,
    "None": None,
    "true": True,
    "false": False,
}
pytestmark = pytest.mark.skipif(not SOURCE.exists(), reason="runs in the source tree only")


def value(text: str, protocol: str) -> Any:
    """The value of a Rust literal or of a constant of ``protocol``.

    Raises:
        LookupError: another expression.
    """
    text = re.sub(r"^(?:Some|Backoff::fixed)\((.*)\)$", r"\1", text.strip())
    if text in WORDS:
        return WORDS[text]
    if found := re.fullmatch(r"Duration::from_(secs|millis)\((.+)\)", text):
        return value(found[2], protocol) * UNITS[found[1]]
    if found := re.fullmatch(r'"(.*)"\.into\(\)', text):
        return found[1]
    if re.fullmatch(r"[\d_]+( (<<|\*) [\d_]+)*", text):
        return eval(text)
    if re.fullmatch(r"\w+", text):
        constants = "".join(path.read_text() for path in (SOURCE / protocol).rglob("*.rs"))
        if found := re.search(rf"const {text}: \w+ = ([^;]+);", constants):
            return value(found[1], protocol)
    if found := re.fullmatch(r"\w+::(\w+)", text):
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).lower()
        return snake if found[1] == "None" else WORDS.get(found[1], snake)
    raise LookupError(text)


def fields(folder: str, struct: str) -> dict[str, str]:
    source = (SOURCE / folder / "options.rs").read_text()
    found = re.search(rf"impl Default for {struct} \{{\n.*?Self \{{(.*?)\}}", source, re.DOTALL)
    assert found, f"{folder}/options.rs has no defaults of {struct}"
    return dict(re.findall(r"(\w+): ((?:[^,()]|\([^()]*(?:\([^()]*\))?[^()]*\))+)", found[1]))


@pytest.mark.parametrize("place", PLACES, ids="/".join)
def test_the_defaults_of_rust_are_those_of_python(place: tuple[str, str]) -> None:
    name, prefix = PLACES[place]
    table, compared = protocols.table(name), 0
    for field, text in fields(*place).items():
        option = table.get(prefix + field)
        if option is None or (name, prefix + field) in OTHER_ON_PURPOSE:
            continue
        try:
            expected = value(text, place[0].rpartition("/")[2])
        except LookupError:
            continue
        assert option.default == (pytest.approx(expected) if isinstance(expected, float) else expected), field
        compared += 1
    assert compared, "nothing was compared: the source has another form"


def test_every_option_with_a_default_is_compared() -> None:
    compared = {
        (name, prefix + field) for place, (name, prefix) in PLACES.items() for field in fields(*place)
    }
    wanted = {
        (name, option)
        for name in protocols.table_names()
        for option, row in protocols.table(name).items()
        if row.default is not None and not row.face and option not in ("threads", "tls_skip_hostname_check")
    }
    assert wanted - compared == ELSEWHERE
