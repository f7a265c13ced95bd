"""Decodes the first elements of a JSON list and skips the others, so that a list of any length takes little time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

import msgspec

__all__ = ["First"]

if TYPE_CHECKING:
    from typing import Annotated as First
else:

    class First:
        """`First[list[X], 8]` is a type for the first 8 elements of a list of X; type checkers see the list."""

        def __class_getitem__(cls, item: tuple[Any, int]) -> type[msgspec.Struct]:
            elements, limit = item
            return _first_elements(*get_args(elements), limit)


def _first_elements(item: Any, limit: int) -> type[msgspec.Struct]:
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
