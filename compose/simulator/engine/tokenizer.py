"""Encodes text as tokens of four bytes each, so that prompts with a common prefix share tokens."""

import sys
from collections.abc import Iterable

TOKEN_BYTES = 4
# The markers of a chat template; their ids exceed those of four bytes.
_START, _ROLE, _END = 1 << 32, (1 << 32) + 1, (1 << 32) + 2
END_OF_TEXT = (1 << 32) + 3


def encode(text: str) -> list[int]:
    """The tokens of a text; the last one is padded."""
    raw = text.encode("utf-8", "surrogatepass")
    padded = raw + b" " * (-len(raw) % TOKEN_BYTES)
    return list(memoryview(padded).cast("I"))


def decode(tokens: Iterable[int]) -> str:
    """The text of tokens, without the markers of a chat template and the padding."""
    raw = b"".join(token.to_bytes(TOKEN_BYTES, sys.byteorder) for token in tokens if token < _START)
    return raw.decode("utf-8", "replace").rstrip(" ")


def encode_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """The tokens of messages given as (role, content), as in a chat template with a generation prompt."""
    tokens: list[int] = []
    for role, content in messages:
        tokens += (_START, *encode(role), _ROLE)
        tokens += encode(content)
        tokens.append(_END)
    return [*tokens, _START, *encode("assistant"), _ROLE]
