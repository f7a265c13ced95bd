"""The text of a completion, drawn in advance from the seed."""

import random
from dataclasses import dataclass
from typing import ClassVar

from compose.simulator.engine.job import FinishReason
from compose.simulator.engine.tokenizer import END_OF_TEXT, TOKEN_BYTES, encode

# Each piece is one token and needs no escaping in JSON. Encoding the text of a completion returns its tokens, so the
# next turn of a conversation hits the prefix cache.
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
"""Median and sigma of the assumed log-normal length of natural completions, in tokens."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion, drawn when the request arrives, so that it depends on the seed and not on the load."""

    plain: ClassVar[bool] = True  # its pieces need no escaping in JSON
    tool: ClassVar[None] = None
    length: int  # tokens, the end marker included
    finish: FinishReason
    start: int
    stride: int

    def piece(self, index: int) -> bytes:
        """The text of the n-th token."""
        if index == self.length - 1 and self.finish is FinishReason.STOP:
            return b""
        return PIECES[self._position(index)]

    def token(self, index: int) -> int:
        """The id of the n-th token."""
        if index == self.length - 1 and self.finish is FinishReason.STOP:
            return END_OF_TEXT
        return _IDS[self._position(index)]

    def text(self, length: int) -> str:
        """The first `length` tokens."""
        return b"".join(self.piece(index) for index in range(length)).decode()

    def _position(self, index: int) -> int:
        if index < len(_OPENING):
            return index
        return len(_OPENING) + (self.start + index * self.stride) % len(VOCABULARY)


def draw_completion(rng: random.Random, *, max_tokens: int, min_tokens: int, ignore_eos: bool) -> Completion:
    """Draw a completion of at most `max_tokens`."""
    natural = max(1, min_tokens, round(MEDIAN_OUTPUT * rng.lognormvariate(0, OUTPUT_SPREAD)))
    start, stride = rng.randrange(len(VOCABULARY)), rng.randrange(1, len(VOCABULARY))
    if ignore_eos or natural > max_tokens:
        return Completion(max_tokens, FinishReason.LENGTH, start, stride)
    return Completion(natural, FinishReason.STOP, start, stride)
