"""The blocking client of TubeMQ; see :mod:`forebay.blocking`."""

from forebay._sync.tubemq.client import TubeMqClient, TubeMqConsumer, TubeMqProducer, connect

__all__ = ["TubeMqClient", "TubeMqConsumer", "TubeMqProducer", "connect"]
