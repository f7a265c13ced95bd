"""Recognises a chunk of a stream by comparing bytes: it differs from an earlier one in the text of its token only."""

from typing import NamedTuple

from exporters.http.size_lines import MAX_CHUNK, SIZE_LINES

_PLAIN = bytes(byte if 0x20 <= byte < 0x80 and byte not in b'"\\' else byte ^ 1 for byte in range(256))
"""Translates characters that need no escape in a JSON string to themselves; a text with any other byte is parsed."""


class TokenChunk(NamedTuple):
    """The bytes of an HTTP chunk with one event, before and after the text of its token."""

    before: bytes
    after: bytes

    def text(self, data: bytes) -> bytes:
        """The text of the token, if `data` is exactly one such chunk; empty for any other data."""
        length = len(data)
        if length > MAX_CHUNK:
            return b""
        rest = data.removeprefix(SIZE_LINES[length] + self.before)
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
