"""The simulator's engine in virtual time: its scheduler, and the response cache in front of it."""

from dataclasses import dataclass
from random import Random

from compose.simulator.api.response_cache import ResponseCache
from compose.simulator.engine.completion import Completion, draw_completion
from compose.simulator.engine.flags import EngineFlags
from compose.simulator.engine.job import Job
from compose.simulator.engine.request import ServedModel
from compose.simulator.engine.scheduler import Scheduler
from compose.simulator.engine.tokenizer import encode, encode_chat
from compose.simulator.presets.preset import Preset
from loadgen.schedule.requests import CHAT, PlannedRequest, encode_body


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A request in the engine, or its copy in the response cache, with the number of chunks of its stream."""

    job: Job
    completion: Completion
    chunks: int = 0


class VirtualEngine:
    """An engine from its start, for one load after the other; each load has a clock that begins at 0.

    `open` is the number of its open requests. It is `busy` from the time at which a step is due to the end of the last.
    """

    def __init__(self, flags: EngineFlags, preset: Preset) -> None:
        self.flags = flags
        self.open = 0
        self.busy = False
        self._preset = preset
        self.start()

    def start(self) -> None:
        """Start, or start again: the caches are empty, and the random numbers begin again."""
        flags = self.flags
        self.scheduler = Scheduler(flags, self._preset)
        self._random = Random(flags.seed)  # noqa: S311 - repeatable, not secret
        self._served = ServedModel(self._preset.model, flags.max_model_len, self._random)
        self._cache = ResponseCache[Answer]() if flags.response_cache else None

    def check(self, prompt_tokens: int, max_tokens: int) -> int:
        """The largest number of output tokens of a request.

        Raises:
            RequestError: the engine rejects it.
        """
        return self._served.max_tokens(prompt_tokens, max_tokens, "max_tokens")

    def submit(self, request: PlannedRequest, now: float) -> Answer:
        """Queue a request.

        Raises:
            RequestError: the engine rejects it.
        """
        tokens = prompt_tokens(request)
        length = self.check(len(tokens), request.max_tokens)
        completion = draw_completion(self._random, max_tokens=length, min_tokens=0, ignore_eos=True)
        job = Job(
            tokens=tokens,
            prompt_length=len(tokens),
            output_length=completion.length,
            finish=completion.finish,
            generate=completion.token,
            priority=request.priority or 0,
        )
        self.scheduler.submit(job, now)
        return Answer(job, completion)

    def cached(self, request: PlannedRequest) -> Answer | None:
        """The complete answer to an earlier request with the same body."""
        return None if self._cache is None else self._cache.find(request.endpoint, self._body(request))

    def keep(self, request: PlannedRequest, answer: Answer) -> None:
        """Keep a complete answer, if there is a response cache."""
        if self._cache is not None:
            self._cache.keep(request.endpoint, self._body(request), answer)

    def _body(self, request: PlannedRequest) -> bytes:
        return encode_body(request, self._preset.model)


def prompt_tokens(request: PlannedRequest) -> list[int]:
    """The tokens of a request as its JSON body gives them to the simulator."""
    if request.endpoint != CHAT:
        return encode(request.prompt)
    history = [(message.role, message.content) for message in request.history]
    return encode_chat([*history, ("user", request.prompt)])
