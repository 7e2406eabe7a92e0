"""MQTT 3.1, 3.1.1 and 5.0: clients, options, message fields, reason codes, topic matching.

>>> from forebay.mqtt import ReasonCode, matches
>>> matches("shop/+/till", "shop/7/till"), matches("shop/#", "shop"), matches("#", "$SYS/broker")
(True, True, False)
>>> ReasonCode(0x10).name
'NO_MATCHING_SUBSCRIBERS'
"""

from typing import TYPE_CHECKING

from forebay._core import attach as _attach

if TYPE_CHECKING:
    from . import blocking as blocking
    from ._client import MqttClient as MqttClient
    from ._client import MqttConsumer as MqttConsumer
    from ._client import MqttProducer as MqttProducer
    from ._client import connect as connect
    from ._fields import Birth as Birth
    from ._fields import Fields as Fields
    from ._fields import MqttMessage as MqttMessage
    from ._fields import PublishFields as PublishFields
    from ._fields import QoS as QoS
    from ._fields import ReasonCode as ReasonCode
    from ._fields import Will as Will
    from ._fields import matches as matches
    from ._options import MqttClientOptions as MqttClientOptions
    from ._options import MqttConsumerOptions as MqttConsumerOptions
    from ._options import MqttProducerOptions as MqttProducerOptions
else:
    __getattr__, __dir__ = _attach(
        __name__,
        {
            "blocking": "",
            **dict.fromkeys(("MqttClient", "MqttConsumer", "MqttProducer", "connect"), "_client"),
            **dict.fromkeys(
                ("Birth", "Fields", "MqttMessage", "PublishFields", "QoS", "ReasonCode", "Will", "matches"),
                "_fields",
            ),
            **dict.fromkeys(("MqttClientOptions", "MqttConsumerOptions", "MqttProducerOptions"), "_options"),
        },
    )

__all__ = [
    "Birth",
    "Fields",
    "MqttClient",
    "MqttClientOptions",
    "MqttConsumer",
    "MqttConsumerOptions",
    "MqttMessage",
    "MqttProducer",
    "MqttProducerOptions",
    "PublishFields",
    "QoS",
    "ReasonCode",
    "Will",
    "blocking",
    "connect",
    "matches",
]
