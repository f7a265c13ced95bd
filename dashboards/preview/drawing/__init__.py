"""Panels as plots and tables."""
