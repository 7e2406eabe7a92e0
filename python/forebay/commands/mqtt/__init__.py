"""The commands for MQTT URLs, with the flags of ``mosquitto_pub`` and ``mosquitto_sub``."""
