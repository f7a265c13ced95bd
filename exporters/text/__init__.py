"""Text in and out: units, names, addresses, YAML, CSV, files, log lines and errors."""
