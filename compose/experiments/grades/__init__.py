"""Judges the results of an experiment: scores, criteria, costs."""
