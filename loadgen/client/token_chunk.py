"""Recognises a chunk of a stream by comparing bytes: it differs from an earlier one in the text of its token only."""

from typing import NamedTuple

MAX_CHUNK = 4096
"""Bytes of an HTTP chunk with its framing; a longer one is parsed."""

_PLAIN = bytes(byte if 0x20 <= byte < 0x80 and byte not in b'"\\' else byte ^ 1 for byte in range(256))
"""Translates characters that need no escape in a JSON string to themselves; a text with any other byte is parsed."""


def _size_lines() -> list[bytes]:
    """The size line of an HTTP chunk, by the length of the chunk with its framing."""
    lines = [b"\r"] * (MAX_CHUNK + 1)  # where there is none: no chunk starts with this
    for size in range(1, MAX_CHUNK):
        line = b"%x\r\n" % size
        if (length := len(line) + size + 2) <= MAX_CHUNK:
            lines[length] = line
    return lines


_SIZE_LINES = _size_lines()


class TokenChunk(NamedTuple):
    """The bytes of an HTTP chunk with one event, before and after the text of its token."""

    before: bytes
    after: bytes

    def text(self, data: bytes) -> bytes:
        """The text of the token, if `data` is exactly one such chunk; empty for any other data."""
        length = len(data)
        if length > MAX_CHUNK:
            return b""
        rest = data.removeprefix(_SIZE_LINES[length] + self.before)
        text = rest.removesuffix(self.after)
        # Equal lengths mean that there was no prefix, or no suffix, to remove.
        if len(rest) == length or len(text) == len(rest) or text.translate(_PLAIN) != text:
            return b""
        return text


def learn(event: bytes, text: str) -> TokenChunk | None:
    """The chunk of an event with this JSON, of which `text` is the only part that may differ in the next one."""
    plain = text.encode()
    literal = b'"%s"' % plain
    at = event.find(literal)
    # The literal is the text if it occurs once and as a value.
    if at < 0 or event.find(literal, at + 1) >= 0 or event[:at].rstrip()[-1:] != b":" or b"\n" in event:
        return None
    if plain.translate(_PLAIN) != plain:
        return None
    return TokenChunk(b"data: " + event[: at + 1], event[at + 1 + len(plain) :] + b"\n\n\r\n")
