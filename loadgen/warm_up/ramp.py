"""The waves of a warm-up, with the prompt lengths of the classes of an SLO file, and when it is over.

A pass has each number of requests at once, 1, 2, 4 ... N, and in each of them every class. All passes have the same
lengths and other texts, so that the prefix cache has no part in their times.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporters.text.errors import UsageError
from exporters.vocabulary.signals import WARM_UP, Endpoint
from exporters.vocabulary.slo_file import Bound, RequestClass
from loadgen.results.record import Record
from loadgen.results.summary import quantiles
from loadgen.run.warm_up import MOST_OUTPUT, PHASE, powers_of_two
from loadgen.schedule.prompts import Part
from loadgen.schedule.requests import CHAT, COMPLETIONS, PlannedRequest

TOLERANCE = 0.2
"""A pass that is faster by this share shows that the passes before were not warm."""

INSIGNIFICANT = 0.005
"""Seconds; smaller differences show nothing."""

_ROUTES = (Endpoint.CHAT_COMPLETIONS, Endpoint.COMPLETIONS)
_ANY_LENGTH = 512
_FILLED = 0.9
"""Share of the context that prompt and output fill at most: a chat template adds tokens."""


@dataclass(frozen=True, slots=True)
class Length:
    """The tokens of a request, and its path."""

    prompt_tokens: int
    max_tokens: int
    endpoint: str


def lengths(classes: Iterable[RequestClass], context: int | None, *, completions: bool = False) -> list[Length]:
    """The lengths of the classes, each once: the longest prompt below an upper bound, or twice a lower bound.

    `context` is the limit of prompt and output; with `completions`, all requests go to `/v1/completions`.

    Raises:
        UsageError: no class has requests that a warm-up sends.
    """
    found: dict[Length, None] = {}
    for each in classes:
        routes = each.route or _ROUTES
        if not any(route in _ROUTES for route in routes):
            continue
        chat = Endpoint.CHAT_COMPLETIONS in routes and not completions
        output = min(MOST_OUTPUT, _tokens(each.max_tokens, MOST_OUTPUT))
        prompt = _tokens(each.prompt_tokens, _ANY_LENGTH)
        if context is not None:
            output = min(output, max(1, context // 4))
            prompt = max(1, min(prompt, int(context * _FILLED) - output))
        found[Length(prompt, output, CHAT if chat else COMPLETIONS)] = None
    if not found:
        raise UsageError(
            "--slos: no class of the file has requests to warm up with; a class needs the route chat_completions or "
            "completions, or none"
        )
    return list(found)


def _tokens(bound: Bound | None, default: int) -> int:
    match bound:
        case Bound("<", tokens):
            return max(1, tokens - 1)
        case Bound("<=", tokens):
            return max(1, tokens)
        case Bound(_, tokens):
            return max(1, 2 * tokens)
    return default


class Ramp:
    """The requests of each pass; `seed` determines their texts."""

    def __init__(self, of_classes: Sequence[Length], largest: int, seed: str) -> None:
        self._lengths = of_classes
        self._seed = seed
        self.sizes = powers_of_two(largest)

    @property
    def description(self) -> str:
        """The requests of a pass, in words."""
        sizes = ", ".join(map(str, self.sizes))
        prompts = ", ".join(str(each) for each in sorted({each.prompt_tokens for each in self._lengths}))
        return f"{sizes} requests at once, prompts of {prompts} tokens"

    def waves(self, number: int) -> Iterator[list[PlannedRequest]]:
        """The waves of the pass with this number; several of a size that has fewer requests than there are lengths."""
        count = 0
        for size in self.sizes:
            for first in range(0, len(self._lengths), size):
                wave = [self._lengths[(first + place) % len(self._lengths)] for place in range(size)]
                yield [self._request(each, number, count + place) for place, each in enumerate(wave)]
                count += size

    def _request(self, length: Length, number: int, index: int) -> PlannedRequest:
        return PlannedRequest(
            number=index,
            due=0.0,
            phase=PHASE,
            request_class=WARM_UP,
            stream=True,
            endpoint=length.endpoint,
            parts=(Part(f"{self._seed}/{number}/{index}", length.prompt_tokens),),
            max_tokens=length.max_tokens,
        )


Pass = Mapping[int, Sequence[Record]]
"""The records of one pass by the number of requests at once."""


def medians(one: Pass) -> dict[int, float]:
    """The median TTFT by the number of requests at once."""
    found = {
        size: quantiles([each.ttft for each in records if each.ttft is not None]).p50 for size, records in one.items()
    }
    return {size: median for size, median in found.items() if median is not None}


def is_warm(passes: Sequence[Mapping[int, float]]) -> bool:
    """Whether the medians of the last pass are not lower than the lowest before, at any number of requests."""
    *earlier, last = passes
    if not earlier:
        return False
    lowest = {size: min(each.get(size, median) for each in earlier) for size, median in last.items()}
    return all(lowest[size] - median <= max(TOLERANCE * lowest[size], INSIGNIFICANT) for size, median in last.items())
