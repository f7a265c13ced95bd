"""The lab: the command line, the native runner and the simulated engine."""
