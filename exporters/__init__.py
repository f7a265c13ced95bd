"""The sidecar: series names, SLO file, relay and exporter processes, request log."""
