"""Builders on the foundation SDK: layout, style, tables, links, ConfigMaps."""
