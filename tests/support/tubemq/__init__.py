"""TubeMQ: servers, the Java client, frames written by hand, and a server that lies."""
