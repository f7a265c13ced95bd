"""Generates Grafana dashboards from the same names and the same SLO file."""
