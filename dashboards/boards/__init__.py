"""One module a dashboard: what it asks, and its panels in the order of reading."""
