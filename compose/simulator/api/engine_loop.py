"""Runs the scheduler in real time, from a start of the engine to its restart, and sends tokens to the writers."""

import asyncio
import random

from compose.simulator.api.writers import ResponseWriter
from compose.simulator.engine.flags import EngineFlags
from compose.simulator.engine.job import Job
from compose.simulator.engine.metrics import EngineMetrics
from compose.simulator.engine.request import EngineRequest
from compose.simulator.engine.scheduler import Scheduler, Step
from compose.simulator.presets.preset import Preset

MAX_LAG = 0.05
"""Lag in seconds from which the engine does not catch up, because the machine is too slow for the preset."""


class EngineLoop:
    """The engine state that a restart resets: queue, KV cache, metrics and random numbers."""

    def __init__(self, flags: EngineFlags, preset: Preset, *, model: str, started: float) -> None:
        self.flags = flags
        self.rng = random.Random(flags.seed)  # noqa: S311 - a model, not a secret
        self.scheduler = Scheduler(flags, preset)
        self.metrics = EngineMetrics(flags, preset, model=model, scheduler=self.scheduler, started=started)
        self._loop = asyncio.get_running_loop()
        self._open: dict[Job, tuple[EngineRequest, ResponseWriter]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, request: EngineRequest, writer: ResponseWriter) -> Job:
        """Queue a request; an idle engine starts a step at once."""
        completion = request.completion
        job = Job(
            tokens=list(request.prompt),
            prompt_length=len(request.prompt),
            output_length=completion.length,
            finish=completion.finish,
            generate=completion.token,
            priority=request.priority,
            pooling=request.max_tokens == 0,
        )
        now = self._loop.time()
        self._open[job] = request, writer
        self.scheduler.submit(job, now)
        if self._timer is None:
            self._start_step(now)
        return job

    def abort(self, job: Job) -> None:
        """Remove a request whose client has disconnected; a finished request is ignored."""
        if self._open.pop(job, None) is not None:
            self.scheduler.abort(job)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._open.clear()

    def _start_step(self, now: float) -> None:
        step = self.scheduler.step(now)
        self._timer = None if step is None else self._loop.call_at(step.ends_at, self._finish_step, step)

    def _finish_step(self, step: Step) -> None:
        tokens = [token for token in self.scheduler.tokens(step) if token.job in self._open]
        self.metrics.count_step(step, tokens)
        for token in tokens:
            request, writer = self._open[token.job]
            writer.tokens(token.job, token.count, token.finish)
            if token.finish is not None:
                del self._open[token.job]
                self.metrics.count_finished(token.job, request.max_tokens)
        # The next step starts at the modelled end of this one, because the timer has a resolution of 1 ms.
        now = self._loop.time()
        lag = now - step.ends_at
        self.metrics.count_lag(lag)
        self._start_step(step.ends_at if lag < MAX_LAG else now)
