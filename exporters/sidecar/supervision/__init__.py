"""The parent process: starts and restarts the exporter and the relays, and drains them in order."""
