"""Generates text with a given number of tokens, from words that are one token for almost every tokenizer."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

# Common three-letter words: with its space, each is one token and four characters. So the scenario, the engine's count
# and the sidecar's estimate of four characters per token agree.
WORDS = (  # noqa: SIM905 - a list literal would have 190 lines
    "ace act add age ago aid aim air all and any are arm art ask bad bag bar bat bed bet bid big bit box boy bus but "
    "buy can cap car cat cut dad day die dig dog dry due ear eat egg end eye fan far fat few fit fix fly for fox fun "
    "gap gas get god got gun guy had has hat her him his hit hot how ice its job joy key kid kit lab law lay led leg "
    "let lie log lot low mad man map may men met mix mom mud net new nor not now nut odd off oil old one our out own "
    "pay pen per pet pin pit pop pot put ran rat raw red rid row run sad sat saw say sea see set she sit six sky son "
    "sum sun tax tea ten the tie tip too top toy try two use van via war was way web who why win yes yet you zoo"
).split()


@dataclass(frozen=True, slots=True)
class Part:
    """`tokens` of text that depends on the seed only: prompts that begin with equal parts share a prefix."""

    seed: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Quoted(Part):
    """The text of a recorded prompt, with an estimate of its tokens."""

    text: str


def join(parts: Iterable[Part]) -> str:
    """The text of a prompt, with as many tokens as its parts together."""
    return " ".join(map(_text, parts))


@lru_cache(maxsize=4096)  # for the parts that many prompts share; 8 MB of blocks of a trace
def _text(part: Part) -> str:
    if isinstance(part, Quoted):
        return part.text
    return " ".join(Random(part.seed).choices(WORDS, k=part.tokens))  # noqa: S311 - repeatable, not secret
