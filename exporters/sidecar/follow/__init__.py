"""Follows a growing log: finds and reads its files, converts its lines to records, and saves position and counts."""
