"""The report of a run as one HTML file, without scripts and without references to other files."""
