"""The plan of a run: class, sizes and prompt of each request, determined by the seed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import count, product
from random import Random
from typing import Any, Protocol

import msgspec
from msgspec import structs

from exporters.vocabulary.signals import Endpoint
from loadgen.schedule import prompts
from loadgen.schedule.arrivals import arrivals
from loadgen.schedule.phases import Phase
from loadgen.schedule.prompts import Part
from loadgen.schedule.scenario import Conversation, Scenario, Starters, TokenRange

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
SESSION_HEADER = "x-session-id"
"""The header of a conversation, by which a load balancer can send its turns to one engine."""
USER_PAUSE = 1.0
"""Least pause in seconds of a closed-loop user after a failed request: a target that is down is not flooded."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation, and the prompt tokens that it adds."""

    role: str
    content: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A later turn of a conversation, due `think_time` seconds after the end of the turn before."""

    think_time: float
    part: Part
    max_tokens: int


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the plan; `due` in seconds since the start.

    `number` counts the requests of the schedule from 0. The turns of a conversation share it and differ in `turn`;
    `history` is what the turns before sent and received, `later` are the turns to come.
    """

    number: int
    due: float
    phase: str
    request_class: str
    stream: bool
    endpoint: str
    parts: tuple[Part, ...]
    max_tokens: int
    later: tuple[Turn, ...] = ()
    turn: int = 0
    history: tuple[Message, ...] = ()
    tenant: str | msgspec.UnsetType = msgspec.UNSET  # unset values leave the hash of a schedule without them as it is
    priority: int | msgspec.UnsetType = msgspec.UNSET
    extra_body: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    json_output: bool | msgspec.UnsetType = msgspec.UNSET
    """The answer must be JSON, which ends where the engine ends it."""

    @property
    def api(self) -> Endpoint:
        """The endpoint as the sidecar names it."""
        return Endpoint.CHAT_COMPLETIONS if self.endpoint == CHAT else Endpoint.COMPLETIONS

    @property
    def prompt(self) -> str:
        """The text of this turn, without the history."""
        return prompts.join(self.parts)

    @property
    def prompt_tokens(self) -> int:
        return sum(part.tokens for part in self.parts) + sum(message.tokens for message in self.history)

    @property
    def prompt_hash(self) -> str:
        """The same for requests with the same prompt, whatever their other parameters."""
        content = self.parts, [message.content for message in self.history]
        return blake2b(msgspec.json.encode(content), digest_size=8).hexdigest()

    def next_turn(self, answer: str, answer_tokens: int, ended: float) -> "PlannedRequest | None":
        """The turn after this one, which ended `ended` seconds after the start; None after the last."""
        if not self.later:
            return None
        turn, *later = self.later
        asked = Message("user", self.prompt, sum(part.tokens for part in self.parts))
        return structs.replace(
            self,
            due=ended + turn.think_time,
            parts=(turn.part,),
            max_tokens=turn.max_tokens,
            later=tuple(later),
            turn=self.turn + 1,
            history=(*self.history, asked, Message("assistant", answer, answer_tokens)),
        )


class Schedule(Protocol):
    """The requests of a run, fixed before the first is sent; without closed-loop phases, only those by due time."""

    def __iter__(self) -> Iterator[PlannedRequest]:
        """The open-loop requests by due time: the same ones in every iteration."""

    def users(self, phase: Phase) -> Iterator[PlannedRequest]:
        """The requests of a closed-loop phase, without end, in the order in which its users take them."""
        return iter(())


def schedule_hash(schedule: Iterable[PlannedRequest]) -> str:
    """SHA-256 over all that the schedule determines, so that equal hashes mean the same requests at the same times."""
    digest = sha256()
    for request in schedule:
        digest.update(msgspec.json.encode(request))
    return digest.hexdigest()


class Workload:
    """The schedule of a scenario; the same scenario, phases and seed give the same requests."""

    def __init__(self, scenario: Scenario, phases: Sequence[Phase], seed: int) -> None:
        self._scenario = scenario
        self._phases = phases
        self._seed = seed
        self._shares = scenario.shares
        self._random = Random(0)  # noqa: S311 - seeded for each request, which costs less than a new one

    def __iter__(self) -> Iterator[PlannedRequest]:
        for number, arrival in enumerate(arrivals(self._phases, self._shares, self._seed)):
            yield self._request(number, arrival.due, arrival.phase, arrival.request_class, str(arrival.number))

    def users(self, phase: Phase) -> Iterator[PlannedRequest]:
        classes = Random(f"{self._seed}/users/{phase.name}")  # noqa: S311 - repeatable, not secret
        for number in count():
            name = classes.choices(list(self._shares), list(self._shares.values()))[0]
            yield self._request(number, 0.0, phase.name, name, f"{phase.name}/{number}")

    def _request(self, number: int, due: float, phase: str, name: str, index: str) -> PlannedRequest:
        # A generator for each request of each class, so that the draws of one do not change those of another.
        seed = f"{self._seed}/request/{name}/{index}"
        random = self._random
        random.seed(seed)
        scenario = self._scenario
        shape = scenario.shapes[name]
        text, lengths = seed, random
        if shape.prompts is not None:
            text = f"{self._seed}/prompt/{name}/{random.randrange(shape.prompts)}"
            lengths = Random(text)  # noqa: S311 - repeatable, not secret
        parts = [Part(text, _draw(lengths, shape.prompt_tokens))]
        max_tokens = _draw(lengths, shape.output_tokens)
        stream = random.random() < scenario.stream_share
        chat = random.random() < scenario.chat_share
        if "tools" in (shape.extra_body or ()):
            chat = True  # completions have none
        if shape.document:
            parts.insert(0, self._document(random.randrange(len(scenario.corpus))))
        turns: list[Turn] = []
        if shape.conversation is not None:
            chat = True  # the history needs roles
            turns.extend(
                Turn(
                    random.uniform(shape.conversation.think_time.least, shape.conversation.think_time.most),
                    Part(f"{seed}/{turn}", _draw(random, shape.prompt_tokens)),
                    _draw(random, shape.output_tokens),
                )
                for turn in range(1, _draw(random, shape.conversation.turns))
            )
            parts[:0] = self._starter(random, name, shape.conversation)
        tenant: str | msgspec.UnsetType = msgspec.UNSET
        if shape.tenant is not None:
            drawn = Random(f"{seed}/tenant")  # noqa: S311 - repeatable, not secret
            (tenant,) = drawn.choices(list(shape.tenant), list(shape.tenant.values()))
        return PlannedRequest(
            number=number,
            due=due,
            phase=phase,
            request_class=name,
            stream=stream,
            endpoint=CHAT if chat else COMPLETIONS,
            parts=tuple(parts),
            max_tokens=max_tokens,
            later=tuple(turns),
            tenant=tenant,
            priority=msgspec.UNSET if shape.priority is None else shape.priority,
            extra_body=shape.extra_body or msgspec.UNSET,
            json_output=shape.asks_for_json or msgspec.UNSET,
        )

    def _starter(self, random: Random, name: str, conversation: Conversation) -> list[Part]:
        starters = conversation.starters
        if starters is None:
            return []
        ranks = range(1, starters.count + 1)
        return [self._of_rank(random.choices(ranks, [rank**-starters.exponent for rank in ranks])[0], name, starters)]

    def _of_rank(self, rank: int, name: str, starters: Starters) -> Part:
        seed = f"{self._seed}/starter/{name}/{rank}"
        return Part(seed, _draw(Random(seed), starters.tokens))  # noqa: S311 - repeatable, not secret

    def _document(self, index: int) -> Part:
        return Part(f"{self._seed}/document/{index}", self._scenario.corpus[index])

    def shared_beginnings(self, most: int) -> Iterator[PlannedRequest]:
        """A request for each text that prompts of a class begin with: due at 0, with one output token.

        The texts are the documents of the corpus and the starters of conversations, the first `most` of a class, of
        which starters have the highest ranks. The two endpoints put other tokens before a prompt.
        """
        chat_share, found = self._scenario.chat_share, dict[tuple[Part, str], str]()
        for name in (name for name, share in self._shares.items() if share):
            shape = self._scenario.shapes[name]
            endpoints = [endpoint for endpoint, share in ((CHAT, chat_share), (COMPLETIONS, 1 - chat_share)) if share]
            parts: list[Part] = []
            if shape.conversation is not None and (starters := shape.conversation.starters) is not None:
                parts = [self._of_rank(rank, name, starters) for rank in range(1, min(starters.count, most) + 1)]
            elif shape.document:
                parts = [self._document(index) for index in range(min(len(self._scenario.corpus), most))]
            for part, endpoint in product(parts, endpoints if shape.conversation is None else [CHAT]):
                found.setdefault((part, endpoint), name)
        for number, ((part, endpoint), name) in enumerate(found.items()):
            yield PlannedRequest(
                number=number,
                due=0.0,
                phase="",
                request_class=name,
                stream=True,
                endpoint=endpoint,
                parts=(part,),
                max_tokens=1,
            )


def _draw(random: Random, tokens: TokenRange) -> int:
    return random.randint(tokens.least, tokens.most)


def encode_body(request: PlannedRequest, model: str) -> bytes:
    """The JSON body; with `ignore_eos` the engine generates exactly `max_tokens`, so the load is repeatable.

    JSON ends before that, so a request for it has no `ignore_eos`.
    """
    body: dict[str, object] = {"model": model}
    if request.endpoint == CHAT:
        history = [{"role": message.role, "content": message.content} for message in request.history]
        body["messages"] = [*history, {"role": "user", "content": request.prompt}]
    else:
        body["prompt"] = request.prompt
    body |= {"max_tokens": request.max_tokens, "temperature": 0, "stream": request.stream}
    if not request.json_output:
        body["ignore_eos"] = True
    if request.priority is not msgspec.UNSET:
        body["priority"] = request.priority
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    body |= request.extra_body or {}
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
