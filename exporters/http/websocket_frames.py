"""Finds the close frame in one direction of a WebSocket (RFC 6455, section 5), without decoding any payload."""

_CLOSE = 8
_MAX_HEADER = 14

MAX_FRAMES = 4096
"""Frames searched per read; more of them, nearly without payload, would block the event loop for over 5 ms."""


class FrameScanner:
    """Follows the headers of the frames of one direction."""

    __slots__ = ("_header", "_left", "_lost", "closed")

    def __init__(self) -> None:
        self.closed = False
        """Whether a close frame has begun."""
        self._lost = False
        """Whether a read had too many frames, so that the next header is unknown."""
        self._header = b""
        self._left = 0

    def feed(self, data: bytes) -> None:
        if self.closed or self._lost:
            return
        at, size = 0, len(data)
        for _ in range(MAX_FRAMES):
            if size - at <= self._left:
                self._left -= size - at
                return
            at += self._left
            self._left = 0
            header = self._header + data[at : at + _MAX_HEADER - len(self._header)]
            length = _header_length(header)
            if len(header) < length:
                self._header = header
                return
            at += length - len(self._header)
            self._header = b""
            if header[0] & 0x0F == _CLOSE:
                self.closed = True
                return
            self._left = _payload_length(header)
        self._lost = True


def _header_length(header: bytes) -> int:
    if len(header) < 2:
        return 2
    length = header[1] & 0x7F
    extended = 2 if length == 126 else 8 if length == 127 else 0
    masked = 4 if header[1] & 0x80 else 0
    return 2 + extended + masked


def _payload_length(header: bytes) -> int:
    length = header[1] & 0x7F
    if length == 126:
        return int.from_bytes(header[2:4], "big")
    return int.from_bytes(header[2:10], "big") if length == 127 else length
