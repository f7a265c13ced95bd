"""The plan of a run: class, sizes and prompt of each request, determined by the seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from exporters.signals import Endpoint
from loadgen import prompt_text
from loadgen.arrivals import Arrival
from loadgen.scenario import Scenario, TokenRange

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of the plan; `due` in seconds since the start, `number` counts from 0."""

    number: int
    due: float
    phase: str
    request_class: str
    stream: bool
    endpoint: str
    prompt_tokens: int
    max_tokens: int
    prompt: str

    @property
    def api(self) -> Endpoint:
        """The endpoint as the sidecar names it."""
        return Endpoint.CHAT_COMPLETIONS if self.endpoint == CHAT else Endpoint.COMPLETIONS


class Workload:
    """Plans a request for each arrival; the same scenario and seed give the same requests."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._seed = seed
        self._documents = prompt_text.documents(seed, scenario.corpus)
        self._weights = [shape.share for shape in scenario.shapes.values()]

    def plan(self, arrivals: Iterator[Arrival]) -> Iterator[PlannedRequest]:
        for number, arrival in enumerate(arrivals):
            yield self._request(number, arrival)

    def _request(self, number: int, arrival: Arrival) -> PlannedRequest:
        # A random generator for each request, so that the draws of one request do not change those of the next.
        random = Random(f"{self._seed}/request/{number}")  # noqa: S311 - repeatable, not secret
        name, shape = random.choices(list(self._scenario.shapes.items()), self._weights)[0]
        own_tokens, max_tokens = _draw(random, shape.prompt_tokens), _draw(random, shape.output_tokens)
        stream = random.random() < self._scenario.stream_share
        chat = random.random() < self._scenario.chat_share
        prompt, tokens = prompt_text.text(random, own_tokens), own_tokens
        if shape.document:
            index = random.randrange(len(self._documents))
            prompt = f"{self._documents[index]}\n\n{prompt}"
            tokens += self._scenario.corpus[index]
        return PlannedRequest(
            number=number,
            due=arrival.due,
            phase=arrival.phase,
            request_class=name,
            stream=stream,
            endpoint=CHAT if chat else COMPLETIONS,
            prompt_tokens=tokens,
            max_tokens=max_tokens,
            prompt=prompt,
        )


def _draw(random: Random, tokens: TokenRange) -> int:
    return random.randint(tokens.least, tokens.most)


def encode_body(request: PlannedRequest, model: str) -> bytes:
    """The JSON body; with `ignore_eos` the engine generates exactly `max_tokens`, so the load is repeatable."""
    body: dict[str, object] = {"model": model}
    if request.endpoint == CHAT:
        body["messages"] = [{"role": "user", "content": request.prompt}]
    else:
        body["prompt"] = request.prompt
    body |= {"max_tokens": request.max_tokens, "temperature": 0, "ignore_eos": True, "stream": request.stream}
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(body)


def encode_head(endpoint: str, host: str, length: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """The HTTP/1.1 head of a POST; each request has its own connection."""
    lines = [
        f"POST {endpoint} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        f"content-length: {length}",
        "connection: close",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
