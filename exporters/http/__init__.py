"""Framing of HTTP/1.1 messages and of server-sent events, without I/O; for the relay and for the load generator."""
