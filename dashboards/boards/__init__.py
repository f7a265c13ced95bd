"""One module per dashboard, with its rows and panels from top to bottom."""
