"""The blocking client of MQTT; see :mod:`forebay.blocking`."""

from forebay._sync.mqtt.client import MqttClient, MqttConsumer, MqttProducer, connect

__all__ = ["MqttClient", "MqttConsumer", "MqttProducer", "connect"]
