"""Options and verbs that the engine does not have yet, in one table: such a value raises an error that names
the option, rather than being ignored.

An option that the engine learns loses its row here.
"""
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ._enums import (
    ConsumerCryptoFailureAction,
    Result,
)
from .exceptions import PulsarException, make


class Refusal(NamedTuple):
    """One refusal."""

    when: Callable[[Any], bool]
    """Which values are refused."""
    why: str
    """Reason, and the alternative."""


def _given(value: Any) -> bool:
    return value is not None


def _not(*accepted: Any) -> Callable[[Any], bool]:
    return lambda value: value not in accepted


_ENCRYPTION = "end-to-end encryption is not supported yet"
_CLUSTERS = "switching between clusters is not supported yet: pass the URL of one"

REFUSALS: Mapping[str, Refusal] = {
    # Client
    "authentication": Refusal(
        lambda given: given is not None and given.method not in ("token", "tls", "basic", "oauth2"),
        "Athenz and other methods are not supported yet: use tokens, certificates, passwords or OAuth 2.0",
    ),
    "service_url": Refusal(lambda url: not isinstance(url, str), _CLUSTERS),
    "tls_allow_insecure_connection": Refusal(
        _not(False), "certificates are always checked: name the authority in tls_trust_certs_file_path"
    ),
    # Every handle
    "crypto_key_reader": Refusal(_given, _ENCRYPTION),
    # Producer
    "encryption_key": Refusal(_given, _ENCRYPTION),
    # Consumer and reader
    "replicate_subscription_state_enabled": Refusal(bool, "replicated subscriptions are not supported yet"),
    "crypto_failure_action": Refusal(
        lambda action: action == ConsumerCryptoFailureAction.CONSUME,
        "encrypted messages are not delivered yet: use FAIL or DISCARD",
    ),
    # Verbs
    "MessageBatch.parse_from": Refusal(_given, "payloads of batches are taken apart by the engine only"),
}
"""Name of an option or verb -> its refusal."""


def refuse(name: str) -> PulsarException:
    """The exception of the refusal ``name``."""
    return make(Result.OperationNotSupported, f"{name}: {REFUSALS[name].why}")


def check(given: Mapping[str, Any]) -> None:
    """Refuses what the engine cannot do yet.

    Args:
        given: options by name.

    Raises:
        OperationNotSupported: a value that the table refuses.
    """
    for name, value in given.items():
        refusal = REFUSALS.get(name)
        if refusal and refusal.when(value):
            raise refuse(name)
