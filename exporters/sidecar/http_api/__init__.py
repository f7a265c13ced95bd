"""The metrics port: exposition, health, admin endpoints and who may read them."""
