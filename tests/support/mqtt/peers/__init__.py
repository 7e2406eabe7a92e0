"""MQTT clients of other authors behind one set of verbs, a file for each.

They are paho-mqtt, aiomqtt, gmqtt, the npm client MQTT.js, and mosquitto_pub with mosquitto_sub.
Names of properties are those of ``support.mqtt.wire``.
"""

from __future__ import annotations

from support.mqtt.peers.aiomqtt import Aiomqtt
from support.mqtt.peers.base import Filter, Peer, PeerWill, Refused, Seen, Target
from support.mqtt.peers.gmqtt import Gmqtt
from support.mqtt.peers.mosquitto import MosquittoPrograms
from support.mqtt.peers.mqtt_js import MqttJs
from support.mqtt.peers.paho import Paho

__all__ = [
    "PEERS",
    "Aiomqtt",
    "Filter",
    "Gmqtt",
    "MosquittoPrograms",
    "MqttJs",
    "Paho",
    "Peer",
    "PeerWill",
    "Refused",
    "Seen",
    "Target",
]

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Paho, Aiomqtt, Gmqtt, MqttJs, MosquittoPrograms)}
