"""Reads one HTTP/1.1 response: bytes in, body bytes out, whatever the pieces they arrive in."""

from enum import Enum, auto

HEAD_LIMIT = 64 * 1024


class ProtocolError(Exception):
    """What arrived is no HTTP/1.1 response."""


class _At(Enum):
    HEAD = auto()
    LENGTH = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


class Response:
    """One response being read; `status` is None until its head is complete, header names are lower case."""

    __slots__ = ("_at", "_held", "_left", "headers", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._at = _At.HEAD
        self._held = b""
        self._left = 0

    @property
    def complete(self) -> bool:
        return self._at is _At.DONE

    def feed(self, data: bytes) -> bytes:
        """The body bytes that `data` brings; bytes after the end are ignored.

        Raises:
            ProtocolError: this is no HTTP/1.1 response.
        """
        data, self._held = self._held + data, b""
        body: list[bytes] = []
        at = 0
        while self._at is not _At.DONE:
            match self._at:
                case _At.UNTIL_CLOSE:
                    body.append(data[at:])
                    break
                case _At.LENGTH | _At.CHUNK:
                    piece = data[at : at + self._left]
                    if piece:
                        body.append(piece)
                    at += len(piece)
                    self._left -= len(piece)
                    if self._left:
                        break
                    self._at = _At.DONE if self._at is _At.LENGTH else _At.CHUNK_END
                case _At.HEAD:
                    end = data.find(b"\r\n\r\n", at)
                    if end < 0:
                        self._hold(data[at:])
                        break
                    self._head(data[at:end])
                    at = end + 4
                case _:
                    end = data.find(b"\r\n", at)
                    if end < 0:
                        self._hold(data[at:])
                        break
                    self._line(data[at:end])
                    at = end + 2
        return body[0] if len(body) == 1 else b"".join(body)

    def eof(self) -> None:
        """The sender has closed: the end of a body that has no length, and of no other."""
        if self._at is _At.UNTIL_CLOSE:
            self._at = _At.DONE

    def _hold(self, data: bytes) -> None:
        if len(data) > HEAD_LIMIT:
            raise ProtocolError(f"no end of line or head in {HEAD_LIMIT} bytes")
        self._held = data

    def _head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise ProtocolError(f"{first[:80]!r} is no status line")
        if 100 <= int(words[1]) < 200:  # a 100 Continue or 103 Early Hints goes before the response
            return
        self.status = int(words[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        length = self.headers.get("content-length")
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._at = _At.CHUNK_SIZE
        elif self.status in {204, 304}:
            self._at = _At.DONE
        elif length is None:
            self._at = _At.UNTIL_CLOSE
        elif length.isdecimal():
            self._left = int(length)
            self._at = _At.LENGTH
        else:
            raise ProtocolError(f"content-length is {length!r}")

    def _line(self, line: bytes) -> None:
        match self._at:
            case _At.CHUNK_SIZE:
                try:
                    self._left = int(line.split(b";", 1)[0], 16)
                except ValueError as error:
                    raise ProtocolError(f"{line[:40]!r} is no chunk size") from error
                self._at = _At.CHUNK if self._left else _At.TRAILER
            case _At.CHUNK_END:
                if line:
                    raise ProtocolError(f"{line[:40]!r} follows a chunk")
                self._at = _At.CHUNK_SIZE
            case _:  # a trailer, which nobody reads; the empty line ends the response
                if not line:
                    self._at = _At.DONE
