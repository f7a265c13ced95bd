"""Processes that the lab starts and ends."""
