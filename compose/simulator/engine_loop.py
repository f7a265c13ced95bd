"""One life of the engine, from start to restart: steps it in real time and hands each step's tokens to the replies."""

import asyncio
import random
from dataclasses import dataclass

from compose.simulator.engine_flags import Settings
from compose.simulator.presets import Preset
from compose.simulator.request_parser import Ask
from compose.simulator.response_writers import Reply
from compose.simulator.scheduler import Engine, Job, Step
from compose.simulator.vllm_metrics import EngineMetrics

LATE = 0.05
"""Seconds behind its own clock at which the model gives up catching up: this machine is too slow for the preset."""


@dataclass(frozen=True, slots=True)
class _Open:
    ask: Ask
    reply: Reply


class Life:
    """Queue, KV cache, series and draws, all of which a restart loses."""

    def __init__(self, settings: Settings, preset: Preset, *, model: str, started: float) -> None:
        self.settings = settings
        self.rng = random.Random(settings.seed)  # noqa: S311 - a model, no secret
        self.engine = Engine(settings, preset)
        self.metrics = EngineMetrics(settings, preset, model=model, engine=self.engine, started=started)
        self._loop = asyncio.get_running_loop()
        self._open: dict[Job, _Open] = {}
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, ask: Ask, reply: Reply) -> Job:
        """Queue a request; an idle engine begins at once."""
        answer = ask.answer
        job = Job(
            tokens=list(ask.prompt),
            prompt_length=len(ask.prompt),
            output_length=answer.length,
            finish=answer.finish,
            generate=answer.token,
        )
        now = self._loop.time()
        self._open[job] = _Open(ask, reply)
        self.engine.submit(job, now)
        if self._timer is None:
            self._begin(now)
        return job

    def abort(self, job: Job) -> None:
        """Forget a request whose client has gone; nothing happens to one that is finished."""
        if self._open.pop(job, None) is not None:
            self.engine.abort(job)

    def end(self) -> None:
        """Stop for good."""
        if self._timer is not None:
            self._timer.cancel()
        self._open.clear()

    def _begin(self, now: float) -> None:
        step = self.engine.step(now)
        self._timer = None if step is None else self._loop.call_at(step.ends_at, self._finish, step)

    def _finish(self, step: Step) -> None:
        tokens = [token for token in step.tokens if token.job in self._open]
        self.metrics.step(step, tokens)
        for token in tokens:
            self._open[token.job].reply.token(token.job, token.finish)
            if token.finish is not None:
                done = self._open.pop(token.job)
                self.metrics.finished(token.job, done.ask.max_tokens)
        # The next step begins where this one ended by the model, not where a timer of 1 ms grain got to.
        now = self._loop.time()
        self._begin(step.ends_at if now - step.ends_at < LATE else now)
