"""Generates text with a given number of tokens, from words that are one token for almost every tokenizer."""

from collections.abc import Sequence
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


def text(random: Random, tokens: int) -> str:
    return " ".join(random.choices(WORDS, k=tokens))


def documents(seed: int, sizes: Sequence[int]) -> tuple[str, ...]:
    """The corpus: one text for each size in tokens, the same for every request of a run."""
    return tuple(text(Random(f"{seed}/document/{index}"), size) for index, size in enumerate(sizes))  # noqa: S311
