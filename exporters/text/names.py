"""Cuts names that come from outside, such as model names and request ids, before they are stored or exposed."""

MAX_BYTES = 256
"""Maximum size of a name in a record, a log line, a label or an error message, in UTF-8."""

MAX_UNIQUE_BYTES = MAX_BYTES - 4
"""A cut name is longer, because a character has at most 4 bytes."""


def cut(name: str) -> str:
    """The name, or the characters that fit into its first `MAX_BYTES` bytes."""
    if len(name) <= MAX_BYTES and (name.isascii() or len(name.encode()) <= MAX_BYTES):
        return name
    return name[:MAX_BYTES].encode()[:MAX_BYTES].decode(errors="ignore")


def is_unique(name: str) -> bool:
    """Whether no other name is cut to this one."""
    return len(name.encode()) <= MAX_UNIQUE_BYTES
