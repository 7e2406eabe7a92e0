"""The blocking client of Pulsar; see :mod:`forebay.blocking`."""

from forebay._sync.pulsar.client import PulsarClient, PulsarConsumer, PulsarProducer, connect
from forebay._sync.pulsar.table_view import PulsarTableView

__all__ = ["PulsarClient", "PulsarConsumer", "PulsarProducer", "PulsarTableView", "connect"]
