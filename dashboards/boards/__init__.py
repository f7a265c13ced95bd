"""One module a dashboard, with its rows and panels from top to bottom."""
