"""The plan of a run: each arrival with its class, sizes and prompt, decided by the seed and never by timing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from loadgen import prompt_text
from loadgen.arrivals import Arrival
from loadgen.scenario import Scenario, Span

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Planned:
    """One request as it is meant to be; `due` in seconds since the start, `number` counts from 0."""

    number: int
    due: float
    phase: str
    request_class: str
    stream: bool
    endpoint: str
    prompt_tokens: int
    max_tokens: int
    prompt: str


class Workload:
    """Turns arrivals into requests; two with the same scenario and seed plan the same ones."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._seed = seed
        self._documents = prompt_text.documents(seed, scenario.corpus)
        self._weights = [shape.share for shape in scenario.shapes]

    def plan(self, arrivals: Iterator[Arrival]) -> Iterator[Planned]:
        for number, arrival in enumerate(arrivals):
            yield self._planned(number, arrival)

    def _planned(self, number: int, arrival: Arrival) -> Planned:
        # A generator of its own for each request: what one class draws cannot shift what the next ones get.
        random = Random(f"{self._seed}/request/{number}")  # noqa: S311 - repeatable, not secret
        shape = random.choices(self._scenario.shapes, self._weights)[0]
        own_tokens, max_tokens = _draw(random, shape.prompt_tokens), _draw(random, shape.output_tokens)
        stream = random.random() < self._scenario.stream_share
        chat = random.random() < self._scenario.chat_share
        prompt, tokens = prompt_text.text(random, own_tokens), own_tokens
        if shape.document:
            which = random.randrange(len(self._documents))
            prompt = f"{self._documents[which]}\n\n{prompt}"
            tokens += self._scenario.corpus[which]
        return Planned(
            number=number,
            due=arrival.due,
            phase=arrival.phase,
            request_class=shape.name,
            stream=stream,
            endpoint=CHAT if chat else COMPLETIONS,
            prompt_tokens=tokens,
            max_tokens=max_tokens,
            prompt=prompt,
        )


def _draw(random: Random, span: Span) -> int:
    return random.randint(span.least, span.most)


def body(planned: Planned, model: str) -> bytes:
    """The JSON that asks for exactly `max_tokens`, so that the work offered does not depend on what a model says."""
    asked: dict[str, object] = {"model": model}
    if planned.endpoint == CHAT:
        asked["messages"] = [{"role": "user", "content": planned.prompt}]
    else:
        asked["prompt"] = planned.prompt
    asked |= {"max_tokens": planned.max_tokens, "temperature": 0, "ignore_eos": True, "stream": planned.stream}
    if planned.stream:
        asked["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(asked)


def head(endpoint: str, host: str, length: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """The HTTP/1.1 head of a POST; each request has a connection of its own, as each user has."""
    lines = [
        f"POST {endpoint} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        f"content-length: {length}",
        "connection: close",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
