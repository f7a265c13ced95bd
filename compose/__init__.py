"""The command line, and the lab: its native runner and the simulated engine."""
