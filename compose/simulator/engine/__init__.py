"""The scheduler model of the simulated engine."""
