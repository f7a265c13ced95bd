"""What is measured of a request and its response."""
