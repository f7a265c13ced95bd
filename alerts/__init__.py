"""Turns the SLO file into Prometheus recording and alerting rules."""
