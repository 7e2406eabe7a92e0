"""MQTT: servers, a recording proxy, packets written by hand, and clients of other authors."""
