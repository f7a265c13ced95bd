"""Alerts on causes: engines, replicas, traffic, and the sidecar itself."""
