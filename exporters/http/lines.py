"""Counts bytes up to a limit, and cuts a read so that parsing it does not block the event loop for too long."""

MAX_LINES = 512
"""Line ends of a read that are parsed at once: each may end a header, a chunk, or a line of an event."""


def has_more_than(limit: int, byte: bytes, data: bytes | bytearray) -> bool:
    """Whether the byte occurs more often than `limit`."""
    # `replace` searches by memchr and stops at the limit; `count` takes 30 times as long if there is nothing to find.
    return len(data) - len(data.replace(byte, b"", limit + 1)) > limit


def few_lines(data: bytes) -> bytes:
    """The beginning of a read that has at most MAX_LINES line ends of each kind; usually all of it."""
    while len(data) > MAX_LINES and (has_more_than(MAX_LINES, b"\n", data) or has_more_than(MAX_LINES, b"\r", data)):
        data = data[: len(data) // 2]
    return data
