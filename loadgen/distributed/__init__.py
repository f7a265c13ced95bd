"""A run over several Locust processes, and its web page."""
