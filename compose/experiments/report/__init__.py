"""The report of an experiment: tables, plots, conclusions."""
