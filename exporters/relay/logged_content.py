"""The prompt and the completion of a request for the request log, each cut at a limit; see `--log-content full`."""

from exporters.relay.request_body import NOT_JSON, decode_members

_FIELDS = (
    *("instructions", "system", "messages", "input", "prompt", "tokens", "tools"),
    *("query", "queries", "documents", "items", "text_1", "text_2", "data_1", "data_2"),
)
"""The fields of all APIs that have content."""

_TEXT = -1
"""The position of the text before the tool calls of its choice."""


class LoggedContent:
    """The prompt of one request, and its output as far as it has arrived; implements `Output`."""

    def __init__(self, body: bytes, limit: int) -> None:
        """`limit`: the maximum size of the prompt, and that of the completion, in bytes of UTF-8."""
        self.is_cut = False
        """Whether the prompt or the completion is cut."""
        self.empty_call = b""
        self._left = limit
        self._parts: dict[tuple[int, int], bytearray] = {}
        """By number of the choice and of the tool call."""
        self.prompt = self._prompt(body, limit)

    @property
    def completion(self) -> str | None:
        """The text and the arguments of tool calls, separated by line breaks; None without output."""
        parts = [self._parts[key].decode(errors="ignore") for key in sorted(self._parts)]
        return "\n".join(parts) if parts else None

    def text(self, piece: str, choice: int = 0) -> None:
        self._add((choice, _TEXT), piece)

    def call(self, call: int, piece: str, choice: int = 0) -> None:
        self._add((choice, call), piece)

    def calls_tool(self) -> None:
        """The arguments follow in a later event."""

    def cut(self, choice: int = 0) -> None:
        """The finish reason shows that the choice ends at the limit of tokens."""

    def _add(self, key: tuple[int, int], piece: str) -> None:
        data = piece.encode()
        if not data:
            return
        if key not in self._parts and self._left:
            self._parts[key] = bytearray()
            self._left -= 1  # the line break
        if len(data) > self._left:
            self.is_cut = True
        if self._left:
            self._parts[key] += data[: self._left]
            self._left = max(0, self._left - len(data))

    def _prompt(self, body: bytes, limit: int) -> str | None:
        """The JSON object of the fields with content, whose values are as the client has sent them."""
        try:
            fields = decode_members(body)
        except NOT_JSON:
            return None
        json = bytearray()
        for name in _FIELDS:
            if name in fields and len(json) <= limit:
                json += b'%s"%s":' % (b"," if json else b"{", name.encode())
                json += memoryview(fields[name])[: limit + 1]
        if not json:
            return None
        json += b"}"
        self.is_cut = len(json) > limit
        return json[:limit].decode(errors="ignore")
