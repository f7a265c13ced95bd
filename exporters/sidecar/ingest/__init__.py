"""Writes the records of the relays to the request log and the series."""
