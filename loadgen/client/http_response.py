"""Reads one HTTP/1.1 response that arrives in pieces of any size, and returns its body bytes."""

from exporters.http.parser import (
    BadHttpError,
    Body,
    ChunkedBody,
    CloseDelimitedBody,
    ResponseHead,
    SizedBody,
    head_end,
    parse_response,
)

HEAD_LIMIT = 64 * 1024


class HttpResponse:
    """One response; `status` and `head` are None until the head is complete."""

    __slots__ = ("_body", "_unparsed", "head", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.head: ResponseHead | None = None
        self._body: Body | None = None
        self._unparsed = b""

    @property
    def complete(self) -> bool:
        return self._body is not None and self._body.done

    @property
    def between_chunks(self) -> bool:
        return isinstance(self._body, ChunkedBody) and self._body.between

    def feed(self, data: bytes) -> bytes:
        """The body bytes in `data`; bytes after the end of the response are ignored.

        Raises:
            BadHttpError: the bytes are not an HTTP/1.1 response.
        """
        if self._body is None:
            try:
                data = self._after_head(data)
            except BadHttpError as error:
                start = (self._unparsed + data).partition(b"\r\n")[0][:80].decode("latin-1")
                raise BadHttpError(f"{error.message}; the response starts with {start!r}") from error
        if self._body is None or self._body.done:
            return b""
        pieces = self._body.feed(data)
        if self._body.broken:
            raise BadHttpError(f"invalid HTTP: a chunk of the response is malformed: {self._body.rest[:40]!r}")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def eof(self) -> None:
        """The server has closed the connection; this completes only a body without a length."""
        if isinstance(self._body, CloseDelimitedBody):
            self._body.done = True

    def _after_head(self, data: bytes) -> bytes:
        scanned, data = len(self._unparsed), self._unparsed + data
        while end := head_end(data, "response", scanned):
            head, data, scanned = parse_response(data[:end], head_only=False), data[end:], 0
            if head.status >= 200:  # 100 Continue or 103 Early Hints precede the response
                self.head, self.status, self._unparsed = head, head.status, b""
                if head.chunked:
                    self._body = ChunkedBody()
                else:
                    self._body = CloseDelimitedBody() if head.length is None else SizedBody(head.length)
                return data
        if len(data) > HEAD_LIMIT:
            raise BadHttpError(f"invalid HTTP: the head of the response exceeds {HEAD_LIMIT} bytes")
        self._unparsed = data
        return b""
