"""MQTT, beside other clients in Python and in C."""
