"""MQTT 3.1, 3.1.1 and 5.0: clients, options, message fields, reason codes, topic matching.

>>> from forebay.mqtt import ReasonCode, matches
>>> matches("shop/+/till", "shop/7/till"), matches("shop/#", "shop"), matches("#", "$SYS/broker")
(True, True, False)
>>> ReasonCode(0x10).name
'NO_MATCHING_SUBSCRIBERS'
"""

from typing import TYPE_CHECKING

from forebay import _lazy

if TYPE_CHECKING:
    from . import blocking as blocking
    from .client import MqttClient as MqttClient
    from .client import MqttConsumer as MqttConsumer
    from .client import MqttProducer as MqttProducer
    from .client import connect as connect
    from .fields import Birth as Birth
    from .fields import Fields as Fields
    from .fields import MqttMessage as MqttMessage
    from .fields import PublishFields as PublishFields
    from .fields import QoS as QoS
    from .fields import ReasonCode as ReasonCode
    from .fields import Will as Will
    from .fields import matches as matches
    from .options import MqttClientOptions as MqttClientOptions
    from .options import MqttConsumerOptions as MqttConsumerOptions
    from .options import MqttProducerOptions as MqttProducerOptions
else:
    __getattr__, __dir__ = _lazy.attach(
        __name__,
        {
            "blocking": "",
            **dict.fromkeys(("MqttClient", "MqttConsumer", "MqttProducer", "connect"), "client"),
            **dict.fromkeys(
                ("Birth", "Fields", "MqttMessage", "PublishFields", "QoS", "ReasonCode", "Will", "matches"),
                "fields",
            ),
            **dict.fromkeys(("MqttClientOptions", "MqttConsumerOptions", "MqttProducerOptions"), "options"),
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
