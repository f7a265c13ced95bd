"""Alerts on the burn of error budgets."""
