"""Windows of SLOs and of config changes."""
