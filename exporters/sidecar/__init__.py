"""The sidecar: command, supervisor and exporter process."""
