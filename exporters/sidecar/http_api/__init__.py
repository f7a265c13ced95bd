"""The metrics port: exposition, health and admin endpoints, and their authentication."""
