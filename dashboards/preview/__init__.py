"""Draws dashboards as web pages, from live query results and without Grafana."""
