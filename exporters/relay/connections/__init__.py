"""Connections of the relay to clients and engines, and the exchanges between them."""
