"""The size line of an HTTP chunk, by the length of the chunk, to recognise a chunk without parsing it."""

MAX_CHUNK = 4096
"""Bytes of a chunk with its framing; a longer one is parsed."""


def _size_lines() -> list[bytes]:
    lines = [b"\r"] * (MAX_CHUNK + 1)  # where there is none: no chunk starts with this
    for size in range(1, MAX_CHUNK):
        line = b"%x\r\n" % size
        if (length := len(line) + size + 2) <= MAX_CHUNK:
            lines[length] = line
    return lines


SIZE_LINES = _size_lines()
"""The size lines by the length of the chunk with its framing."""
