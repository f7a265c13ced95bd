"""Measures one configuration at one load: in virtual time, with the simulator, or with an engine."""
