"""Writes lines of CSV whose texts a spreadsheet does not execute."""

import re
from collections.abc import Iterable

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters with which a formula begins (OWASP, CSV injection), the last four in full width."""

# Spreadsheets may also split cells at a semicolon or a tab.
_SEPARATES = re.compile('[",;\t\r\n]').search


def csv_line(cells: Iterable[object]) -> str:
    """One line; None is empty, numbers are written as they are, and all other values are texts."""
    return ",".join(map(_cell, cells)) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    if text.startswith(_FORMULA):
        text = f"'{text}"
    return '"{}"'.format(text.replace('"', '""')) if _SEPARATES(text) else text
