"""Parses one HTTP/1.1 response that arrives in pieces of any size, and returns its body bytes."""

from enum import Enum, auto

HEAD_LIMIT = 64 * 1024


class ProtocolError(Exception):
    """The bytes are not an HTTP/1.1 response."""


class _State(Enum):
    HEAD = auto()
    LENGTH = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


class HttpResponse:
    """The parser of one response; `status` is None until the head is complete, header names are lower case."""

    __slots__ = ("_buffer", "_remaining", "_state", "headers", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._state = _State.HEAD
        self._buffer = b""
        self._remaining = 0

    @property
    def complete(self) -> bool:
        return self._state is _State.DONE

    @property
    def between_chunks(self) -> bool:
        return self._state is _State.CHUNK_SIZE and not self._buffer

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`; bytes after the end of the response are ignored.

        Raises:
            ProtocolError: the bytes are not an HTTP/1.1 response.
        """
        data, self._buffer = self._buffer + data, b""
        body: list[bytes] = []
        position = 0
        while self._state is not _State.DONE:
            match self._state:
                case _State.UNTIL_CLOSE:
                    body.append(data[position:])
                    break
                case _State.LENGTH | _State.CHUNK:
                    piece = data[position : position + self._remaining]
                    if piece:
                        body.append(piece)
                    position += len(piece)
                    self._remaining -= len(piece)
                    if self._remaining:
                        break
                    self._state = _State.DONE if self._state is _State.LENGTH else _State.CHUNK_END
                case _State.HEAD:
                    end = data.find(b"\r\n\r\n", position)
                    if end < 0:
                        self._keep(data[position:])
                        break
                    self._head(data[position:end])
                    position = end + 4
                case _:
                    end = data.find(b"\r\n", position)
                    if end < 0:
                        self._keep(data[position:])
                        break
                    self._line(data[position:end])
                    position = end + 2
        return body[0] if len(body) == 1 else b"".join(body)

    def eof(self) -> None:
        """The server has closed the connection; this completes only a body without a length."""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.DONE

    def _keep(self, data: bytes) -> None:
        if len(data) > HEAD_LIMIT:
            raise ProtocolError(f"a head or line exceeds {HEAD_LIMIT} bytes")
        self._buffer = data

    def _head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = rest.partition(" ")[0]
        if not version.startswith("HTTP/1.") or not status.isdecimal():
            raise ProtocolError(f"invalid status line {first[:80]!r}")
        if 100 <= int(status) < 200:  # 100 Continue or 103 Early Hints precede the response
            return
        self.status = int(status)
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        length = self.headers.get("content-length")
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._state = _State.CHUNK_SIZE
        elif self.status in {204, 304}:
            self._state = _State.DONE
        elif length is None:
            self._state = _State.UNTIL_CLOSE
        elif length.isdecimal():
            self._remaining = int(length)
            self._state = _State.LENGTH
        else:
            raise ProtocolError(f"invalid content-length {length!r}")

    def _line(self, line: bytes) -> None:
        match self._state:
            case _State.CHUNK_SIZE:
                try:
                    self._remaining = int(line.split(b";", 1)[0], 16)
                except ValueError as error:
                    raise ProtocolError(f"invalid chunk size {line[:40]!r}") from error
                self._state = _State.CHUNK if self._remaining else _State.TRAILER
            case _State.CHUNK_END:
                if line:
                    raise ProtocolError(f"unexpected {line[:40]!r} after a chunk")
                self._state = _State.CHUNK_SIZE
            case _:  # trailers are ignored; an empty line ends the response
                if not line:
                    self._state = _State.DONE
