"""Child processes of the sidecar: their orders, periodic tasks, resource usage and threads."""
