"""Decodes the first elements of a JSON list and skips the others, so that a list of any length takes little time."""

from collections.abc import Iterator
from typing import Any

import msgspec


def first_elements(item: Any, limit: int) -> Any:
    """A type for the first `limit` elements of a list of `item`."""
    element = item | msgspec.UnsetType
    return msgspec.defstruct(
        "FirstElements",
        [(f"_{number}", element, msgspec.UNSET) for number in range(limit)],
        namespace={"__iter__": _elements, "__getitem__": _element, "__bool__": _has_elements},
        array_like=True,
        frozen=True,
        gc=False,
    )


def _elements(elements: msgspec.Struct) -> Iterator[Any]:
    for element in msgspec.structs.astuple(elements):
        if element is msgspec.UNSET:
            return
        yield element


def _element(elements: msgspec.Struct, number: int) -> Any:
    return getattr(elements, f"_{number}")


def _has_elements(elements: msgspec.Struct) -> bool:
    return _element(elements, 0) is not msgspec.UNSET
