"""The sidecar as a whole: its command, its supervisor and its exporter process."""
