"""Checks an SLO file and explains it: mistakes, detection times, what an outage costs."""
