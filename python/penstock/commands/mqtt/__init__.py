"""The commands with an MQTT URL: their flags are those of ``mosquitto_pub`` and ``mosquitto_sub``."""
