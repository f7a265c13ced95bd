"""Measures every request in front of an engine and exposes it: names, SLO file, relay and exporter processes."""
