"""The prompt and the completion of a request for the request log, each cut at a limit; see `--log-content full`."""

from concurrent.futures import Executor

from exporters.relay.bodies.hashing_thread import known
from exporters.relay.bodies.request_body import LONG_BODY, NOT_JSON, decode_members

_FIELDS = (
    *("instructions", "system", "messages", "input", "prompt", "tokens", "tools"),
    *("query", "queries", "documents", "items", "text_1", "text_2", "data_1", "data_2"),
)
"""The fields of all APIs that have content."""

_TEXT = -1
"""The position of the text before the tool calls of its choice."""


class LoggedContent:
    """The prompt of one request, and its output as far as it has arrived; implements `Output`."""

    def __init__(self, body: bytes, limit: int, hashing: Executor) -> None:
        """`limit`: the maximum size of the prompt, and that of the completion, in bytes of UTF-8.

        `hashing` finds a long prompt.
        """
        self.empty_call = b""
        self._left = limit
        self._completion_is_cut = False
        self._parts: dict[tuple[int, int], bytearray] = {}
        """Parts of the completion, by number of the choice and of the tool call."""
        self.cut_prompt = cut_prompt(body, limit) if len(body) <= LONG_BODY else hashing.submit(cut_prompt, body, limit)

    @property
    def prompt(self) -> str | None:
        return known(self.cut_prompt)[0]

    @property
    def is_cut(self) -> bool:
        """Whether the prompt or the completion is cut."""
        return self._completion_is_cut or known(self.cut_prompt)[1]

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

    def release(self) -> None:
        self._completion_is_cut = True

    def _add(self, key: tuple[int, int], piece: str) -> None:
        data = piece.encode()
        if not data:
            return
        if key not in self._parts and self._left:
            self._parts[key] = bytearray()
            self._left -= 1  # the line break
        if len(data) > self._left:
            self._completion_is_cut = True
        if self._left:
            self._parts[key] += data[: self._left]
            self._left = max(0, self._left - len(data))


def cut_prompt(body: bytes, limit: int) -> tuple[str | None, bool]:
    """The JSON object of the fields with content, with the values that the client has sent, and whether it is cut."""
    try:
        fields = decode_members(body)
    except NOT_JSON:
        return None, False
    json = bytearray()
    for name in _FIELDS:
        if name in fields and len(json) <= limit:
            json += b'%s"%s":' % (b"," if json else b"{", name.encode())
            json += memoryview(fields[name])[: limit + 1]
    if not json:
        return None, False
    json += b"}"
    return json[:limit].decode(errors="ignore"), len(json) > limit
