"""Continuous batching as in vLLM's V1 scheduler, step by step, without a clock or I/O; only drafts are random."""

from bisect import insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from compose.simulator.engine.decoding_batch import DecodingBatch, admission
from compose.simulator.engine.flags import EngineFlags, SchedulingPolicy
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.kv_cache import ROOT, BlockPool, UnsharedBlockPool, block_hash, block_hashes
from compose.simulator.presets.preset import Preset


@dataclass(slots=True)
class Token:
    """The next output token of one request, and those of its draft that were accepted, in one response chunk."""

    job: Job
    gap: float | None  # time since the previous one, None for the first
    finish: FinishReason | None
    count: int = 1  # output tokens
    drafted: int = 0
    accepted: int = 0  # of the drafted tokens, also those after the end of the output


@dataclass(slots=True)
class Step:
    """One forward pass; its tokens are available at its end.

    `tokens` are those that start or end an output, and those of jobs outside the batch that decodes as a whole, which
    has `decoded` more. `Scheduler.tokens` has all.
    """

    started_at: float
    duration: float
    sequences: int  # jobs that the step computes
    scheduled: dict[Job, int]  # number of tokens computed for each job outside the batch
    tokens: list[Token]
    decoded: int
    admitted: list[Job]  # for the first time
    preempted: list[Job]

    @property
    def ends_at(self) -> float:
        return self.started_at + self.duration


class Scheduler:
    """A waiting queue, a running batch and a block pool. No job may exceed `max_model_len`."""

    def __init__(self, flags: EngineFlags, preset: Preset) -> None:
        pool = BlockPool if flags.enable_prefix_caching else UnsharedBlockPool
        self.pool = pool(flags.num_gpu_blocks - 1)  # vLLM reserves block 0 for padding
        self.waiting: deque[Job] = deque()
        self.running: dict[Job, None] = {}  # in the order of admission
        self._flags = flags
        self._preset = preset
        self._by_priority = flags.scheduling_policy is SchedulingPolicy.PRIORITY
        self._draft_tokens = 0 if preset.speculation is None else preset.speculation.tokens
        self._random = Random(flags.seed)  # noqa: S311 - repeatable, not secret
        self._batch = DecodingBatch(flags.block_size)
        self._single: dict[Job, None] = {}
        """The running jobs outside the batch. Without drafts, they are those admitted last."""
        self._admissions = 0

    def submit(self, job: Job, now: float) -> None:
        job.queued_at = now
        if self._by_priority:
            insort(self.waiting, job, key=_rank)
        else:
            self.waiting.append(job)

    def abort(self, job: Job) -> None:
        """Remove a job and free its blocks; a finished job is ignored."""
        if job in self.running:
            self._remove(job)
            self._free(job)
        elif job in self.waiting:
            self.waiting.remove(job)

    def step(self, now: float) -> Step | None:
        """Run one step that starts at `now`; None when there is nothing to do."""
        batch = self._batch
        if not self._draft_tokens:
            self._join_batch()
            if not self._grow_batch():
                for job in [*batch.jobs]:
                    batch.remove(job)
                self._single = self.running.copy()
        scheduled: dict[Job, int] = {}
        admitted: list[Job] = []
        preempted: list[Job] = []
        budget = self._flags.max_num_batched_tokens - len(batch.jobs)
        if self._single:
            budget, preempted = self._continue_single(budget, scheduled)
        if self.waiting and not preempted:
            self._admit(budget, scheduled, admitted, now)
        decoding = len(batch.jobs)
        if not scheduled and not decoding:
            return None
        tokens, context, pairs = decoding, batch.context + decoding, batch.context + decoding / 2
        for job, count in scheduled.items():
            tokens += count
            context += job.computed + count
            pairs += count * (job.computed + count / 2)
        sequences = decoding + len(scheduled)
        duration = self._preset.step_seconds(tokens=tokens, context=context, sequences=sequences, pairs=pairs)
        if self._draft_tokens and (
            drafts := [job for job, count in scheduled.items() if job.computed + count > job.length]
        ):
            duration += self._preset.draft_seconds(requests=len(drafts), context=sum(job.computed for job in drafts))
        ends = now + duration
        ended = [Token(job, job.gaps[-1], job.finish) for job in batch.advance(ends)] if decoding else []
        for token in ended:
            del self.running[token.job]
            self._free(token.job)
        return Step(
            now,
            duration,
            sequences,
            scheduled,
            ended + self._advance(scheduled, ends) if scheduled else ended,
            decoding - len(ended),
            admitted,
            preempted,
        )

    def skip(self, now: float, until: float) -> float:
        """Run the steps that only decode and end no output, while they end by `until`; returns the end of the last.

        Times are in seconds, and those of single steps but for rounding. No step is run that may admit a job, or for
        which the KV cache is full.
        """
        batch = self._batch
        if self._draft_tokens or (self.waiting and self._flags.enable_prefix_caching):
            return now
        self._join_batch()
        size = len(batch.jobs)
        if self._single or not size:
            return now
        if self.waiting and self._can_admit(self.waiting[0], [], self._flags.max_num_batched_tokens - size):
            return now
        first, second = (
            self._preset.step_seconds(tokens=size, context=context, sequences=size, pairs=context - size / 2)
            for context in (batch.context + size, batch.context + 2 * size)
        )
        duration = first
        while now + duration <= until and not batch.ends_a_job and self._grow_batch():
            now += duration
            batch.advance(now)
            duration += second - first  # it is linear in the context
        return now

    def tokens(self, step: Step) -> Iterator[Token]:
        """All tokens of the last step, of jobs that are up to date."""
        for job in self._batch.jobs:
            self._batch.update(job)
            yield Token(job, job.gaps[-1], None)
        yield from step.tokens

    def _join_batch(self) -> None:
        """Add the jobs that decode to the batch."""
        for job in [job for job in self._single if job.generated and job.computed + 1 == job.length]:
            del self._single[job]
            self._batch.add(job)

    def _grow_batch(self) -> bool:
        """Allocate the blocks for the next tokens of the batch; returns False without a change if too few are free."""
        beginning = self._batch.beginning_a_block
        if len(beginning) > self.pool.free:
            return False
        if not self._flags.enable_prefix_caching:
            for job in beginning:
                job.blocks += self.pool.allocate(1)
            return True
        filling = self._batch.filling_a_block
        for job in sorted(beginning | filling if filling else beginning, key=admission):
            if job in beginning:
                job.blocks += self.pool.allocate(1)
            if job in filling:
                self._batch.update(job)
                self._register(job, len(job.blocks))
        return True

    def _continue_single(self, budget: int, scheduled: dict[Job, int]) -> tuple[int, list[Job]]:
        """Schedule the jobs outside the batch; one without free blocks preempts the last by admission or priority."""
        preempted: list[Job] = []
        for job in [*self._single]:
            if not budget:
                break
            if job not in self._single:
                continue
            drafted = self._draft(job) if self._draft_tokens else 0
            count = min(job.length - job.computed + drafted, budget)
            while not self._grow(job, count):
                last = max(self.running, key=_rank) if self._by_priority else next(reversed(self.running))
                if last in self._batch.jobs:
                    budget += 1
                elif last in scheduled:  # it was before this job
                    budget += scheduled.pop(last)
                self._remove(last)
                if last.shared is not None:  # only this job finds its other blocks again, so they are added here
                    self._register(last, min(last.computed // self._flags.block_size, len(last.hashes)))
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
        return budget, preempted

    def _draft(self, job: Job) -> int:
        """The draft tokens of a decoding job. As in vLLM, the token after them fits in the context, too."""
        if not job.generated or job.computed + 1 < job.length:
            return 0
        return max(0, min(self._draft_tokens, self._flags.max_model_len - 1 - job.length))

    def _admit(self, budget: int, scheduled: dict[Job, int], admitted: list[Job], now: float) -> None:
        """Admit waiting jobs in arrival order; a job that does not fit blocks the later ones."""
        while self.waiting and budget:
            job = self.waiting[0]
            hits = self._cached_blocks(job)
            if not self._can_admit(job, hits, budget):
                return
            start = len(hits) * self._flags.block_size
            count = job.length - start
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
            self._admissions += 1
            job.admission = self._admissions
            self.running[job] = self._single[job] = None

    def _can_admit(self, job: Job, hits: list[int], budget: int) -> bool:
        if len(self.running) >= self._flags.max_num_seqs:
            return False
        start = len(hits) * self._flags.block_size
        count = job.length - start
        if count > budget and not self._flags.enable_chunked_prefill:
            return False
        reserved = job.length if self._flags.scheduler_reserve_full_isl else start + min(count, budget)
        return self._blocks_for(reserved) - len(hits) + self.pool.count_unused(hits) <= self.pool.free

    def _advance(self, scheduled: dict[Job, int], ends: float) -> list[Token]:
        """Generate the next tokens of each job outside the batch whose tokens have all been computed."""
        tokens: list[Token] = []
        for job, count in scheduled.items():
            job.computed += count
            if job.computed < job.length:
                continue
            drafted = job.computed - job.length
            accepted = self._accepted(drafted)
            job.computed -= drafted - accepted
            generated = min(1 + accepted, job.output_length - job.generated)
            gap = job.generate_chunk(generated, ends)
            finish = None
            if job.generated == job.output_length:
                finish = job.finish
                self._remove(job)
                self._free(job)
            tokens.append(Token(job, gap, finish, generated, drafted, accepted))
        return tokens

    def _accepted(self, drafted: int) -> int:
        speculation = self._preset.speculation
        return 0 if not drafted or speculation is None else speculation.accepted(drafted, self._random.random())

    def _grow(self, job: Job, count: int) -> bool:
        """Allocate blocks for `count` more tokens; returns False without a change if too few are free."""
        end = job.computed + count
        missing = self._blocks_for(end) - len(job.blocks)
        if missing > 0:
            if missing > self.pool.free:
                return False
            job.blocks += self.pool.allocate(missing)
        if self._flags.enable_prefix_caching:
            full = min(end, job.length) // self._flags.block_size  # draft tokens may be rejected
            self._register(job, full if job.shared is None else min(full, job.shared))
        return True

    def _register(self, job: Job, full: int) -> None:
        """Add the first `full` blocks to the prefix cache; other jobs may share those that this step fills."""
        size = self._flags.block_size
        for index in range(job.registered, full):
            if index == len(job.hashes):
                parent = job.hashes[-1] if job.hashes else ROOT
                job.hashes.append(block_hash(parent, job.all_tokens()[index * size : (index + 1) * size]))
            self.pool.register(job.blocks[index], job.hashes[index])
            job.registered = index + 1

    def _cached_blocks(self, job: Job) -> list[int]:
        """The cached blocks of a job's prefix, without its last token, which must be computed for its logits."""
        if not self._flags.enable_prefix_caching:
            return []
        size = self._flags.block_size
        if not job.hashes:
            job.hashes = list(block_hashes(job.all_tokens(), size))
        return self.pool.find(job.hashes[: (job.length - 1) // size])

    def _full_blocks(self, tokens: int) -> int:
        """The tokens in the full blocks of a prompt; 0 without prefix caching."""
        size = self._flags.block_size
        return tokens // size * size if self._flags.enable_prefix_caching else 0

    def _remove(self, job: Job) -> None:
        del self.running[job]
        if job in self._single:
            del self._single[job]
        else:
            self._batch.remove(job)

    def _free(self, job: Job) -> None:
        self.pool.release(job.blocks)
        job.blocks, job.computed, job.registered = [], 0, 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._flags.block_size)


def _rank(job: Job) -> tuple[int, float]:
    return job.priority, job.queued_at
