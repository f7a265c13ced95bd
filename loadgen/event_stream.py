"""Parses a stream of server-sent events that arrives in pieces of any size."""


class EventStream:
    """Returns the data of each event; comments and fields other than `data` are dropped."""

    __slots__ = ("_after_cr", "_buffer")

    def __init__(self) -> None:
        self._buffer = b""
        self._after_cr = False

    @property
    def between_events(self) -> bool:
        return not self._buffer and not self._after_cr

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that these bytes complete."""
        if self._after_cr or b"\r" in data:
            data = self._normalise_line_ends(data)
        blocks = (self._buffer + data).split(b"\n\n")
        self._buffer = blocks.pop()
        return [event for block in blocks if (event := _data(block))]

    def close(self) -> list[bytes]:
        """The data of a last event without its closing blank line."""
        event, self._buffer = _data(self._buffer), b""
        return [event] if event else []

    def _normalise_line_ends(self, data: bytes) -> bytes:
        """`data` with LF line ends; a CR LF may be split between two calls."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data(block: bytes) -> bytes:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    return b"\n".join(line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:"))
