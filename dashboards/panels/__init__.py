"""Panels that more than one dashboard may show."""
