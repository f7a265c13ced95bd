"""A cache of whole responses in front of the engine: a request whose body repeats an earlier one needs no engine."""

from collections import OrderedDict
from hashlib import sha256
from typing import Generic, TypeVar

T = TypeVar("T")

CAPACITY = 10_000
"""Responses that are kept; the oldest is removed first."""
HIT_SECONDS = 0.002
"""Assumed time of a response from the cache; a published gateway of this kind answers in less than 5 ms."""


class ResponseCache(Generic[T]):
    """Complete responses by the SHA-256 of path and body, so a stream and its unary twin have different entries."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, T] = OrderedDict()

    def find(self, path: str, body: bytes) -> T | None:
        return self._kept.get(_key(path, body))

    def keep(self, path: str, body: bytes, response: T) -> None:
        self._kept[_key(path, body)] = response
        if len(self._kept) > CAPACITY:
            self._kept.popitem(last=False)


def _key(path: str, body: bytes) -> bytes:
    return sha256(path.encode() + b"\n" + body).digest()
