"""Builds HTML and SVG as a tree; every text and attribute is escaped when the tree is written."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, tostring

Part = Element | str
"""A child of an element."""


def element(tag: str, *parts: Part, **attributes: str | float) -> Element:
    """An element; `stroke_width` is the attribute `stroke-width`, and `class_` is `class`."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): _text(value) for name, value in attributes.items()})
    append(made, parts)
    return made


def append(parent: Element, parts: Iterable[Part]) -> None:
    for part in parts:
        if not isinstance(part, str):
            parent.append(part)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + part
        else:
            parent.text = (parent.text or "") + part


def tooltip(mark: Element, text: str) -> Element:
    """The mark with a text that browsers show while the pointer is on it."""
    SubElement(mark, "title").text = text
    return mark


def html_text(root: Element) -> str:
    """The document; what UTF-8 cannot encode becomes a character reference."""
    written: bytes = tostring(root, encoding="utf-8", method="html")
    return f"<!doctype html>\n{written.decode()}\n"


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
