"""Continuous batching as vLLM's V1 scheduler does it, step by step, without clock, socket or randomness of its own."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from compose.simulator.engine_flags import Settings
from compose.simulator.kv_cache import ROOT, BlockPool, chain, chained
from compose.simulator.presets import Preset


class Finish(StrEnum):
    """Why a request ended, as the API says it."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way through the engine; `tokens` are those of the prompt, then those generated."""

    tokens: list[int]
    prompt_length: int
    output_length: int
    finish: Finish
    generate: Callable[[int], int]  # the n-th output token, from 0
    queued_at: float = 0.0
    scheduled_at: float | None = None  # the first time, like every vLLM time below
    first_token_at: float | None = None
    last_token_at: float | None = None
    computed: int = 0  # tokens whose keys and values are in the cache
    cached: int = 0  # prompt tokens found there on admission
    preemptions: int = 0
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)  # of the full blocks, as far as known
    labelled: int = 0  # blocks that can be found by their hash

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def done(self) -> bool:
        return self.generated >= self.output_length


@dataclass(frozen=True, slots=True)
class Token:
    """One request's share of a step: its next output token, and the time since the one before."""

    job: Job
    gap: float | None  # None for the first
    finish: Finish | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one forward pass does; tokens are there when it ends."""

    started_at: float
    duration: float
    tokens: list[Token]
    scheduled: dict[Job, int]  # tokens computed for each, in the order they were considered
    admitted: list[Job]  # for the first time
    preempted: list[Job]

    @property
    def ends_at(self) -> float:
        return self.started_at + self.duration


class Engine:
    """A waiting queue, a running batch and a block pool. Every job that `submit` takes must fit `max_model_len`."""

    def __init__(self, settings: Settings, preset: Preset) -> None:
        self.pool = BlockPool(settings.num_gpu_blocks - 1)  # vLLM keeps block 0 for padding
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self._settings = settings
        self._preset = preset

    def submit(self, job: Job, now: float) -> None:
        """Queue a job."""
        job.queued_at = now
        self.waiting.append(job)

    def abort(self, job: Job) -> None:
        """Forget a job and free its blocks; one that has finished is left alone."""
        if job in self.running:
            self.running.remove(job)
            self._free(job)
        elif job in self.waiting:
            self.waiting.remove(job)

    def step(self, now: float) -> Step | None:
        """Schedule one step that starts at `now` and take its results; None when there is nothing to do."""
        scheduled: dict[Job, int] = {}
        admitted: list[Job] = []
        budget, preempted = self._continue_running(self._settings.max_num_batched_tokens, scheduled)
        if not preempted:
            self._admit(budget, scheduled, admitted, now)
        if not scheduled:
            return None
        duration = self._preset.step_seconds(
            tokens=sum(scheduled.values()), context=sum(job.computed + count for job, count in scheduled.items())
        )
        return Step(
            started_at=now,
            duration=duration,
            tokens=self._advance(scheduled, now + duration),
            scheduled=scheduled,
            admitted=admitted,
            preempted=preempted,
        )

    def _continue_running(self, budget: int, scheduled: dict[Job, int]) -> tuple[int, list[Job]]:
        """Give the running jobs their share first; who cannot get a block drives out the last one admitted."""
        preempted: list[Job] = []
        index = 0
        while index < len(self.running) and budget:
            job = self.running[index]
            count = min(len(job.tokens) - job.computed, budget)
            while not self._grow(job, count):
                last = self.running.pop()
                self._preempt(last)
                preempted.append(last)
                if last is job:
                    return budget, preempted
            scheduled[job] = count
            budget -= count
            index += 1
        return budget, preempted

    def _admit(self, budget: int, scheduled: dict[Job, int], admitted: list[Job], now: float) -> None:
        """First come, first served: a head of the queue that does not fit holds up all behind it."""
        while self.waiting and budget and len(self.running) < self._settings.max_num_seqs:
            job = self.waiting[0]
            hits = self._hits(job)
            start = len(hits) * self._settings.block_size
            count = len(job.tokens) - start
            if count > budget and not self._settings.enable_chunked_prefill:
                return
            # The whole sequence must fit, not only its first chunk (vLLM's scheduler_reserve_full_isl).
            if self._blocks_for(len(job.tokens)) - len(hits) + self.pool.idle(hits) > self.pool.free:
                return
            self.waiting.popleft()
            self.pool.share(hits)
            job.blocks, job.computed, job.labelled = list(hits), start, len(hits)
            if job.scheduled_at is None:
                job.scheduled_at, job.cached = max(now, job.queued_at), start
                admitted.append(job)
            scheduled[job] = min(count, budget)
            budget -= scheduled[job]
            self._grow(job, scheduled[job])
            self.running.append(job)

    def _advance(self, scheduled: dict[Job, int], ends: float) -> list[Token]:
        """Whoever has all its tokens computed gets the next one."""
        tokens: list[Token] = []
        finished = False
        for job, count in scheduled.items():
            job.computed += count
            if job.computed < len(job.tokens):
                continue
            job.tokens.append(job.generate(job.generated))
            gap = None if job.last_token_at is None else ends - job.last_token_at
            if job.first_token_at is None:
                job.first_token_at = ends
            job.last_token_at = ends
            if job.done:
                finished = True
                self._free(job)
            tokens.append(Token(job, gap, job.finish if job.done else None))
        if finished:
            self.running = [job for job in self.running if not job.done]
        return tokens

    def _grow(self, job: Job, count: int) -> bool:
        """Blocks for `count` more tokens, or False and nothing changed."""
        end = job.computed + count
        missing = self._blocks_for(end) - len(job.blocks)
        if missing > self.pool.free:
            return False
        if missing > 0:
            job.blocks += self.pool.take(missing)
        if self._settings.enable_prefix_caching:
            self._label(job, end)
        return True

    def _label(self, job: Job, end: int) -> None:
        """Let others find the blocks that are full once the step has run: they may share them within the same step."""
        size = self._settings.block_size
        for index in range(job.labelled, end // size):
            if index == len(job.hashes):
                parent = job.hashes[-1] if job.hashes else ROOT
                job.hashes.append(chain(parent, job.tokens[index * size : (index + 1) * size]))
            self.pool.label(job.blocks[index], job.hashes[index])
            job.labelled = index + 1

    def _hits(self, job: Job) -> list[int]:
        """The cached blocks a job can begin with; its last token is always computed, for its logits are needed."""
        if not self._settings.enable_prefix_caching:
            return []
        size = self._settings.block_size
        if not job.hashes:
            job.hashes = list(chained(job.tokens, size))
        return self.pool.find(job.hashes[: (len(job.tokens) - 1) // size])

    def _preempt(self, job: Job) -> None:
        self._free(job)
        job.preemptions += 1
        self.waiting.appendleft(job)

    def _free(self, job: Job) -> None:
        self.pool.release(job.blocks)
        job.blocks, job.computed, job.labelled = [], 0, 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._settings.block_size)
