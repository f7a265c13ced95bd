"""Draws dashboards' files as web pages from live query results, for those who have no Grafana."""
