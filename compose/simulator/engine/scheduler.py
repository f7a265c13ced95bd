"""Continuous batching as in vLLM's V1 scheduler, step by step, without a clock or I/O; only drafts are random."""

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from compose.simulator.engine.flags import EngineFlags, SchedulingPolicy
from compose.simulator.engine.kv_cache import ROOT, BlockPool, block_hash, block_hashes
from compose.simulator.engine.presets import Preset


class FinishReason(StrEnum):
    """The `finish_reason` of a request."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(slots=True, eq=False)
class Job:
    """One request in the engine; `tokens` has the prompt and the generated tokens, times are in seconds."""

    tokens: list[int]
    prompt_length: int
    output_length: int
    finish: FinishReason
    generate: Callable[[int], int]  # the n-th output token, from 0
    priority: int = 0  # lower ones first, with the policy `priority`
    pooling: bool = False  # ends with its prefill, whose token is not output
    queued_at: float = 0.0
    scheduled_at: float | None = None  # for the first time, as in vLLM
    first_token_at: float | None = None
    last_token_at: float | None = None
    computed: int = 0  # tokens whose keys and values are in the cache
    cached: int = 0  # prompt tokens found in the prefix cache at admission
    cache_written: int = 0  # prompt tokens that this job adds to the prefix cache
    chunks: int = 0  # steps with output; with speculative decoding fewer than its tokens
    preemptions: int = 0
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)  # of the full blocks
    registered: int = 0  # blocks added to the prefix cache

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def done(self) -> bool:
        return self.generated >= self.output_length


@dataclass(frozen=True, slots=True)
class Token:
    """The next output token of one request, and those of its draft that were accepted, in one response chunk."""

    job: Job
    gap: float | None  # time since the previous one, None for the first
    finish: FinishReason | None
    count: int = 1  # output tokens
    drafted: int = 0
    accepted: int = 0  # of the drafted tokens, also those after the end of the output


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward pass; `tokens` are available at its end."""

    started_at: float
    duration: float
    tokens: list[Token]
    scheduled: dict[Job, int]  # number of tokens computed for each job
    admitted: list[Job]  # for the first time
    preempted: list[Job]

    @property
    def ends_at(self) -> float:
        return self.started_at + self.duration


class Scheduler:
    """A waiting queue, a running batch and a block pool. No job may exceed `max_model_len`."""

    def __init__(self, flags: EngineFlags, preset: Preset) -> None:
        self.pool = BlockPool(flags.num_gpu_blocks - 1)  # vLLM reserves block 0 for padding
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self._flags = flags
        self._preset = preset
        self._by_priority = flags.scheduling_policy is SchedulingPolicy.PRIORITY
        self._draft_tokens = 0 if preset.speculation is None else preset.speculation.tokens
        self._random = Random(flags.seed)  # noqa: S311 - repeatable, not secret

    def submit(self, job: Job, now: float) -> None:
        job.queued_at = now
        if self._by_priority:
            insort(self.waiting, job, key=_rank)
        else:
            self.waiting.append(job)

    def abort(self, job: Job) -> None:
        """Remove a job and free its blocks; a finished job is ignored."""
        if job in self.running:
            self.running.remove(job)
            self._free(job)
        elif job in self.waiting:
            self.waiting.remove(job)

    def step(self, now: float) -> Step | None:
        """Run one step that starts at `now`; None when there is nothing to do."""
        scheduled: dict[Job, int] = {}
        admitted: list[Job] = []
        budget, preempted = self._continue_running(self._flags.max_num_batched_tokens, scheduled)
        if not preempted:
            self._admit(budget, scheduled, admitted, now)
        if not scheduled:
            return None
        duration = self._preset.step_seconds(
            tokens=sum(scheduled.values()),
            context=sum(job.computed + count for job, count in scheduled.items()),
            sequences=len(scheduled),
            pairs=sum(count * (job.computed + count / 2) for job, count in scheduled.items()),
        )
        if drafts := [job for job, count in scheduled.items() if job.computed + count > len(job.tokens)]:
            duration += self._preset.draft_seconds(requests=len(drafts), context=sum(job.computed for job in drafts))
        return Step(
            started_at=now,
            duration=duration,
            tokens=self._advance(scheduled, now + duration),
            scheduled=scheduled,
            admitted=admitted,
            preempted=preempted,
        )

    def skip(self) -> float:
        """Run all steps at once until a request ends, while all running requests decode and none can be admitted.

        Returns their duration in seconds; 0 where each step must be run, as when the KV cache is full. Drafts
        are not supported. The tokens are generated, and not returned.
        """
        jobs = self.running
        if not jobs or any(job.computed + 1 < len(job.tokens) for job in jobs):
            return 0.0
        budget = self._flags.max_num_batched_tokens - len(jobs)
        if self.waiting and self._can_admit(self.waiting[0], self._cached_blocks(self.waiting[0]), budget):
            return 0.0
        steps = min(job.output_length - job.generated for job in jobs) - 1
        while sum(self._blocks_for(job.computed + steps) - len(job.blocks) for job in jobs) > self.pool.free:
            steps //= 2
        if steps < 1:
            return 0.0
        # The duration is linear in the context, so that of its mean counts.
        context = sum(job.computed for job in jobs) + len(jobs) * (steps + 1) / 2
        for job in jobs:
            self._grow(job, steps)
            job.computed += steps
            job.tokens.extend(map(job.generate, range(job.generated, job.generated + steps)))
        n = len(jobs)
        return steps * self._preset.step_seconds(tokens=n, context=context, sequences=n, pairs=context - n / 2)

    def _continue_running(self, budget: int, scheduled: dict[Job, int]) -> tuple[int, list[Job]]:
        """Schedule the running jobs; a job without free blocks preempts the last admitted, or the last by priority."""
        preempted: list[Job] = []
        index = 0
        while index < len(self.running) and budget:
            job = self.running[index]
            drafted = self._draft(job) if self._draft_tokens else 0
            count = min(len(job.tokens) - job.computed + drafted, budget)
            while not self._grow(job, count):
                last = max(self.running, key=_rank) if self._by_priority else self.running[-1]
                self.running.remove(last)
                if last in scheduled:  # it was before this job
                    budget += scheduled.pop(last)
                    index -= 1
                self._free(last)
                last.preemptions += 1
                if self._by_priority:
                    insort(self.waiting, last, key=_rank)
                else:
                    self.waiting.appendleft(last)
                preempted.append(last)
                if last is job:
                    break
            else:
                scheduled[job] = count
                budget -= count
                index += 1
        return budget, preempted

    def _draft(self, job: Job) -> int:
        """The draft tokens of a decoding job. As in vLLM, the token after them fits in the context, too."""
        if not job.generated or job.computed + 1 < len(job.tokens):
            return 0
        return max(0, min(self._draft_tokens, self._flags.max_model_len - 1 - len(job.tokens)))

    def _admit(self, budget: int, scheduled: dict[Job, int], admitted: list[Job], now: float) -> None:
        """Admit waiting jobs in arrival order; a job that does not fit blocks the later ones."""
        while self.waiting and budget:
            job = self.waiting[0]
            hits = self._cached_blocks(job)
            if not self._can_admit(job, hits, budget):
                return
            start = len(hits) * self._flags.block_size
            count = len(job.tokens) - start
            self.waiting.popleft()
            self.pool.share(hits)
            job.blocks, job.computed, job.registered = list(hits), start, len(hits)
            if job.scheduled_at is None:
                job.scheduled_at, job.cached = max(now, job.queued_at), start
                job.cache_written = self._full_blocks(job.prompt_length) - start
                admitted.append(job)
            scheduled[job] = min(count, budget)
            budget -= scheduled[job]
            self._grow(job, scheduled[job])
            self.running.append(job)

    def _can_admit(self, job: Job, hits: list[int], budget: int) -> bool:
        if len(self.running) >= self._flags.max_num_seqs:
            return False
        start = len(hits) * self._flags.block_size
        count = len(job.tokens) - start
        if count > budget and not self._flags.enable_chunked_prefill:
            return False
        reserved = len(job.tokens) if self._flags.scheduler_reserve_full_isl else start + min(count, budget)
        return self._blocks_for(reserved) - len(hits) + self.pool.count_unused(hits) <= self.pool.free

    def _advance(self, scheduled: dict[Job, int], ends: float) -> list[Token]:
        """Generate the next tokens of each job whose tokens have all been computed."""
        tokens: list[Token] = []
        finished = False
        for job, count in scheduled.items():
            job.computed += count
            if job.computed < len(job.tokens):
                continue
            drafted = job.computed - len(job.tokens)
            accepted = self._accepted(drafted)
            job.computed -= drafted - accepted
            before = len(job.tokens) - job.prompt_length
            after = min(before + 1 + accepted, job.output_length)
            job.tokens.extend(map(job.generate, range(before, after)))
            gap = None if job.last_token_at is None else ends - job.last_token_at
            if job.first_token_at is None:
                job.first_token_at = ends
            job.last_token_at = ends
            job.chunks += 1
            finish = None
            if after == job.output_length:
                finished, finish = True, job.finish
                self._free(job)
            tokens.append(Token(job, gap, finish, after - before, drafted, accepted))
        if finished:
            self.running = [job for job in self.running if not job.done]
        return tokens

    def _accepted(self, drafted: int) -> int:
        speculation = self._preset.speculation
        return 0 if not drafted or speculation is None else speculation.accepted(drafted, self._random.random())

    def _grow(self, job: Job, count: int) -> bool:
        """Allocate blocks for `count` more tokens; returns False and changes nothing if too few are free."""
        end = job.computed + count
        missing = self._blocks_for(end) - len(job.blocks)
        if missing > 0:
            if missing > self.pool.free:
                return False
            job.blocks += self.pool.allocate(missing)
        if self._flags.enable_prefix_caching:
            self._register(job, min(end, len(job.tokens)))  # draft tokens may be rejected
        return True

    def _register(self, job: Job, end: int) -> None:
        """Add the blocks that this step fills to the prefix cache; other jobs may share them in the same step."""
        size = self._flags.block_size
        for index in range(job.registered, end // size):
            if index == len(job.hashes):
                parent = job.hashes[-1] if job.hashes else ROOT
                job.hashes.append(block_hash(parent, job.tokens[index * size : (index + 1) * size]))
            self.pool.register(job.blocks[index], job.hashes[index])
            job.registered = index + 1

    def _cached_blocks(self, job: Job) -> list[int]:
        """The cached blocks of a job's prefix, without its last token, which must be computed for its logits."""
        if not self._flags.enable_prefix_caching:
            return []
        size = self._flags.block_size
        if not job.hashes:
            job.hashes = list(block_hashes(job.tokens, size))
        return self.pool.find(job.hashes[: (len(job.tokens) - 1) // size])

    def _full_blocks(self, tokens: int) -> int:
        """The tokens in the full blocks of a prompt; 0 without prefix caching."""
        size = self._flags.block_size
        return tokens // size * size if self._flags.enable_prefix_caching else 0

    def _free(self, job: Job) -> None:
        self.pool.release(job.blocks)
        job.blocks, job.computed, job.registered = [], 0, 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._flags.block_size)


def _rank(job: Job) -> tuple[int, float]:
    return job.priority, job.queued_at
