"""Programs of others, such as Prometheus: found, downloaded or unpacked, and kept."""
