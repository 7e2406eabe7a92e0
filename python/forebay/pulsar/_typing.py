"""Types for annotations of Pulsar's classes. ``T`` stands for values: bytes where a handle has no schema, and
anything where a class stands without its parameter."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from forebay._core.types import Duration, Timestamp

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", default=Any, covariant=True)
    T_contra = TypeVar("T_contra", default=Any, contravariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)
    T_contra = TypeVar("T_contra", contravariant=True)


class MessageFields(TypedDict, total=False):
    """Keywords of :meth:`forebay.pulsar.PulsarProducer.send`, without those that say what the value is."""

    ordering_key: bytes | None
    properties: dict[str, str] | None
    event_time: Timestamp | None
    sequence_id: int | None
    deliver_at: Timestamp | None
    deliver_after: Duration | None
    replicate_to: Sequence[str] | None
    disable_replication: bool
