"""The parent process: starts the exporter and the relays, restarts them, and drains in the right order."""
