"""Commands that read what the sidecar has written: requests, compare, diagnose, roofline, traces."""
