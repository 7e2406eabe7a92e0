"""Completion of options: Jedi, which Jupyter uses, lists them with their defaults."""

from __future__ import annotations

from typing import Any

import jedi

import forebay
import forebay.blocking


def parameters(code: str, **names: Any) -> dict[str, str]:
    """The parameters, with their defaults, that Jedi shows behind the open parenthesis of ``code``."""
    (signature,) = jedi.Interpreter(code, [{"forebay": forebay, **names}]).get_signatures()
    parameters = [one.description.removeprefix("param ").partition("=") for one in signature.params]
    return {name.partition(":")[0].strip(): default.strip() for name, _, default in parameters}


def test_jedi_shows_the_options_of_connect() -> None:
    shown = parameters("forebay.connect(")
    assert (shown["connect_timeout"], shown["token"], shown["tls_alpn"]) == ("10.0", "None", "'mqtt'")
    assert {"client_id", "heartbeat_interval", "tls_ca", "threads"} <= shown.keys()
    assert parameters("forebay.blocking.connect(") == shown


def test_jedi_shows_and_completes_the_options_of_handles() -> None:
    with forebay.Broker(mqtt_port=0) as broker, forebay.blocking.connect(broker.url) as client:
        shown = parameters("client.producer(", client=client)
        assert (shown["compression"], shown["batch_max_messages"]) == ("'none'", "1000")
        assert parameters("client.consumer(", client=client)["type"] == "'exclusive'"
        found = jedi.Interpreter("client.producer('a', compress", [{"client": client}]).complete()
        assert {"compression=", "compression_min_size="} <= {one.name for one in found}
        with forebay.blocking.connect(broker.mqtt_url) as other:
            assert parameters("client.producer(", client=other)["qos"] == "1"
