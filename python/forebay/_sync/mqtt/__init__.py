"""The blocking client of MQTT, generated."""
