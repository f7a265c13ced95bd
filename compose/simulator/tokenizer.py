"""Text in, tokens out and back: four bytes are one token, so equal beginnings of prompts are equal tokens."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from compose.simulator.scheduler import Finish

TOKEN_BYTES = 4
# Ids that no four bytes can have: what a chat template puts around each message.
_START, _ROLE, _END = 1 << 32, (1 << 32) + 1, (1 << 32) + 2
END_OF_TEXT = (1 << 32) + 3


def encode(text: str) -> list[int]:
    """The tokens of a text; the last one is padded."""
    raw = text.encode("utf-8", "surrogatepass")
    padded = raw + b" " * (-len(raw) % TOKEN_BYTES)
    return list(memoryview(padded).cast("I"))


def encode_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """Role and content of each message between markers, then the marker that asks for the answer."""
    tokens: list[int] = []
    for role, content in messages:
        tokens += (_START, *encode(role), _ROLE)
        tokens += encode(content)
        tokens.append(_END)
    return [*tokens, _START, *encode("assistant"), _ROLE]


# Each is one token and needs no escaping in JSON. An answer sent back as a message gives its own tokens again, so the
# next turn of a conversation hits the prefix cache where the answer stands.
_OPENING: tuple[str, ...] = ("[sim", "ulat", "ed] ")
_WORDS = (
    "the and for are was not you all any can had her one our out day get has him his how man new now old see two way "
    "who did its let put say she too use "
)
VOCABULARY: tuple[str, ...] = tuple(_WORDS[at : at + TOKEN_BYTES] for at in range(0, len(_WORDS), TOKEN_BYTES))
PIECES: tuple[bytes, ...] = tuple(piece.encode() for piece in (*_OPENING, *VOCABULARY))
_IDS: tuple[int, ...] = tuple(encode(piece.decode())[0] for piece in PIECES)

MEDIAN_OUTPUT = 200
OUTPUT_SPREAD = 0.8
"""Assumed shape of natural answer lengths: log-normal, as chat logs roughly are."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What will be said: fixed when the request comes in, so that it depends on the seed and not on the load."""

    length: int  # tokens, the end marker included
    finish: Finish
    start: int
    stride: int

    def piece(self, index: int) -> bytes:
        """The text of the n-th token."""
        if index == self.length - 1 and self.finish is Finish.STOP:
            return b""
        return PIECES[self._position(index)]

    def token(self, index: int) -> int:
        """The id of the n-th token."""
        if index == self.length - 1 and self.finish is Finish.STOP:
            return END_OF_TEXT
        return _IDS[self._position(index)]

    def text(self, length: int) -> str:
        """The first `length` tokens."""
        return b"".join(self.piece(index) for index in range(length)).decode()

    def _position(self, index: int) -> int:
        if index < len(_OPENING):
            return index
        return len(_OPENING) + (self.start + index * self.stride) % len(VOCABULARY)


def draw_answer(rng: random.Random, *, max_tokens: int, min_tokens: int, ignore_eos: bool) -> Answer:
    """An answer of at most `max_tokens`, which stops earlier where the draw says so."""
    natural = max(1, min_tokens, round(MEDIAN_OUTPUT * rng.lognormvariate(0, OUTPUT_SPREAD)))
    start, stride = rng.randrange(len(VOCABULARY)), rng.randrange(1, len(VOCABULARY))
    if ignore_eos or natural > max_tokens:
        return Answer(max_tokens, Finish.LENGTH, start, stride)
    return Answer(natural, Finish.STOP, start, stride)
