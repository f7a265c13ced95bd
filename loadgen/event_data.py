"""Cuts a server-sent event stream into the data of its events, whatever the pieces it arrives in."""


class EventStream:
    """Comments and fields other than `data` are dropped."""

    __slots__ = ("_after_return", "_held")

    def __init__(self) -> None:
        self._held = b""
        self._after_return = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that these bytes complete."""
        if self._after_return or b"\r" in data:
            data = self._plain(data)
        blocks = (self._held + data).split(b"\n\n")
        self._held = blocks.pop()
        return [found for block in blocks if (found := _data(block))]

    def close(self) -> list[bytes]:
        """The data of an event that the sender did not close with a blank line."""
        found, self._held = _data(self._held), b""
        return [found] if found else []

    def _plain(self, data: bytes) -> bytes:
        """The same with every line end as one line feed, though a CR LF may be torn apart."""
        if self._after_return and data:
            data = data.removeprefix(b"\n")
            self._after_return = False
        if data.endswith(b"\r"):
            self._after_return = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data(block: bytes) -> bytes:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    return b"\n".join(line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:"))
