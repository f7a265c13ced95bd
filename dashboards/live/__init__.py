"""Dashboards of a running Grafana: the audit, the interpolation of its variables."""
