"""The properties of the scheduler."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.simulator.engine.decoding_batch import DecodingBatch
from compose.simulator.engine.flags import EngineFlags, SchedulingPolicy, apply_changes, preset_flags
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.kv_cache import UnsharedBlockPool
from compose.simulator.engine.scheduler import Scheduler, Token
from compose.simulator.presets.preset import PRESETS, Preset
from compose.simulator.presets.speculative_decoding import Speculation, independent

TOY = PRESETS["toy"]
SPECULATIVE = replace(TOY, speculation=Speculation(rates=independent(0.6, 3)))
ENGINES = st.sampled_from([TOY, SPECULATIVE])
LENGTH = 64
PLAIN = apply_changes(
    preset_flags(TOY), {"max_model_len": LENGTH, "num_gpu_blocks": 64, "block_size": 4, "max_num_batched_tokens": 64}
)


def job(prompt: int, output: int, *, first: int = 0) -> Job:
    """A job; prompts with the same `first` token have a common prefix, and a priority that depends on it."""
    return Job(
        tokens=[first, *range(1, prompt)],
        prompt_length=prompt,
        output_length=output,
        finish=FinishReason.LENGTH,
        generate=lambda index: 1000 + index,
        priority=-first,
    )


@dataclass(frozen=True)
class Arrival:
    step: int
    prompt: int
    output: int
    first: int


@st.composite
def engines(draw: st.DrawFn) -> EngineFlags:
    size = draw(st.sampled_from([1, 3, 4, 16]))
    enough = -(-LENGTH // size) + 1
    chunked = draw(st.booleans())
    seqs = draw(st.integers(1, 6))
    return EngineFlags(
        max_num_seqs=seqs,
        max_num_batched_tokens=draw(st.integers(seqs if chunked else LENGTH, 2 * LENGTH)),
        num_gpu_blocks=draw(st.integers(enough, 3 * enough)),
        block_size=size,
        max_model_len=LENGTH,
        enable_prefix_caching=draw(st.booleans()),
        enable_chunked_prefill=chunked,
        scheduler_reserve_full_isl=draw(st.booleans()),
        scheduling_policy=draw(st.sampled_from(SchedulingPolicy)),
        seed=0,
    )


ARRIVALS = st.lists(
    st.builds(
        Arrival, step=st.integers(0, 20), prompt=st.integers(1, 40), output=st.integers(1, 24), first=st.integers(0, 2)
    ),
    min_size=1,
    max_size=12,
)


@dataclass(frozen=True)
class Seen:
    """A step with all its tokens, and the number of tokens that it computed for each job."""

    started_at: float
    ends_at: float
    tokens: list[Token]
    scheduled: dict[Job, int]
    admitted: list[Job]
    preempted: list[Job]


def run_step(scheduler: Scheduler, now: float) -> Seen:
    step = scheduler.step(now)
    assert step is not None
    tokens = [*scheduler.tokens(step)]
    decoded = {token.job: 1 for token in tokens if token.job not in step.scheduled}
    assert step.decoded == len(tokens) - len(step.tokens)
    assert step.sequences == len(step.scheduled) + len(decoded)
    return Seen(now, step.ends_at, tokens, decoded | step.scheduled, step.admitted, step.preempted)


def play(scheduler: Scheduler, arrivals: list[Arrival]) -> tuple[list[Job], list[Seen]]:
    """Run all arrivals to their end; the time is the sum of the steps."""
    pending = sorted(arrivals, key=lambda arrival: arrival.step)
    jobs: list[Job] = []
    steps: list[Seen] = []
    now, turn = 0.0, 0
    while pending or scheduler.waiting or scheduler.running:
        while pending and pending[0].step <= turn:
            arrival = pending.pop(0)
            jobs.append(job(arrival.prompt, arrival.output, first=arrival.first))
            scheduler.submit(jobs[-1], now)
        if scheduler.waiting or scheduler.running:
            steps.append(run_step(scheduler, now))
            now = steps[-1].ends_at
            check_blocks(scheduler)
        turn += 1
        assert turn < 10_000, "the engine makes no progress"
    return jobs, steps


def check_blocks(scheduler: Scheduler) -> None:
    users = Counter(block for running in scheduler.running for block in running.blocks)
    if isinstance(scheduler.pool, UnsharedBlockPool):
        assert max(users.values(), default=1) == 1
    else:
        assert [users[block] for block in range(1, scheduler.pool.capacity + 1)] == scheduler.pool._references[1:]
    assert scheduler.pool.free == scheduler.pool.capacity - len(users)
    assert 0 <= scheduler.pool.usage <= 1
    assert all(not waiting.blocks for waiting in scheduler.waiting)


@pytest.mark.slow
@settings(max_examples=150)
@given(engines(), ENGINES, ARRIVALS)
def test_every_request_gets_its_tokens_and_finishes_once(
    flags: EngineFlags, preset: Preset, arrivals: list[Arrival]
) -> None:
    scheduler = Scheduler(flags, preset)
    jobs, steps = play(scheduler, arrivals)
    tokens: Counter[Job] = Counter()
    for token in (token for step in steps for token in step.tokens):
        tokens[token.job] += token.count
    assert tokens == {each: each.output_length for each in jobs}
    assert Counter(token.job for step in steps for token in step.tokens if token.finish) == dict.fromkeys(jobs, 1)
    assert Counter(each for step in steps for each in step.admitted) == dict.fromkeys(jobs, 1)
    assert scheduler.pool.free == scheduler.pool.capacity


@pytest.mark.slow
@settings(max_examples=100)
@given(engines(), ENGINES, ARRIVALS)
def test_a_step_keeps_to_its_budget_and_to_the_batch_size(
    flags: EngineFlags, preset: Preset, arrivals: list[Arrival]
) -> None:
    _, steps = play(Scheduler(flags, preset), arrivals)
    for step in steps:
        assert 0 < sum(step.scheduled.values()) <= flags.max_num_batched_tokens
        assert len(step.scheduled) <= flags.max_num_seqs
        assert all(count > 0 for count in step.scheduled.values())
        assert all(job.prompt_length + job.generated <= flags.max_model_len for job in step.scheduled)


@pytest.mark.slow
@settings(max_examples=100)
@given(engines(), ENGINES, ARRIVALS)
def test_requests_are_admitted_in_arrival_order(flags: EngineFlags, preset: Preset, arrivals: list[Arrival]) -> None:
    fcfs = replace(flags, scheduling_policy=SchedulingPolicy.FCFS)
    jobs, steps = play(Scheduler(fcfs, preset), arrivals)
    assert [each for step in steps for each in step.admitted] == jobs


@pytest.mark.slow
@settings(max_examples=100)
@given(engines(), ENGINES, ARRIVALS)
def test_the_times_of_a_request_are_in_order_and_its_gaps_add_up(
    flags: EngineFlags, preset: Preset, arrivals: list[Arrival]
) -> None:
    jobs, steps = play(Scheduler(flags, preset), arrivals)
    gaps: Counter[Job] = Counter()
    for step in steps:
        for token in step.tokens:
            assert (token.gap is None) == (token.job.first_token_at == step.ends_at)
            gaps[token.job] += token.gap or 0  # type: ignore[assignment]  # a counter of seconds
    for each in jobs:
        assert each.scheduled_at is not None
        assert each.first_token_at is not None
        assert each.last_token_at is not None
        assert each.queued_at <= each.scheduled_at < each.first_token_at <= each.last_token_at
        assert gaps[each] == pytest.approx(each.last_token_at - each.first_token_at)


@settings(max_examples=50)
@given(engines(), ENGINES, ARRIVALS)
def test_the_same_arrivals_give_the_same_trace(flags: EngineFlags, preset: Preset, arrivals: list[Arrival]) -> None:
    def trace() -> list[object]:
        jobs, steps = play(Scheduler(flags, preset), arrivals)
        names = {each: index for index, each in enumerate(jobs)}
        return [
            (step.started_at, step.ends_at, [(names[each], count) for each, count in step.scheduled.items()])
            for step in steps
        ]

    assert trace() == trace()


@pytest.mark.slow
@settings(max_examples=100)
@given(engines(), ENGINES, ARRIVALS, st.data())
def test_aborting_requests_at_any_time_leaks_no_block(
    flags: EngineFlags, preset: Preset, arrivals: list[Arrival], data: st.DataObject
) -> None:
    scheduler = Scheduler(flags, preset)
    jobs = [job(arrival.prompt, arrival.output, first=arrival.first) for arrival in arrivals]
    for each in jobs:
        scheduler.submit(each, 0.0)
    left, now = list(jobs), 0.0
    while scheduler.waiting or scheduler.running:
        step = scheduler.step(now)
        assert step is not None
        now = step.ends_at
        index = data.draw(st.integers(0, 2 * len(left)))
        if index < len(left):
            scheduler.abort(left.pop(index))
        check_blocks(scheduler)
    assert scheduler.pool.free == scheduler.pool.capacity


class _JobByJob(DecodingBatch):
    """A batch that is taken apart before each step."""

    @property
    def beginning_a_block(self) -> dict[Job, None]:
        return dict.fromkeys(range(1000)) if self.jobs else {}  # type: ignore[arg-type]  # more than are free


@settings(max_examples=100)
@given(engines(), ARRIVALS)
def test_a_batch_that_advances_as_a_whole_has_the_steps_of_its_jobs_one_by_one(
    flags: EngineFlags, arrivals: list[Arrival]
) -> None:
    def trace(scheduler: Scheduler) -> list[object]:
        jobs, steps = play(scheduler, arrivals)
        names = {each: index for index, each in enumerate(jobs)}
        tokens = [
            sorted((names[each.job], each.gap or 0, each.finish is None) for each in step.tokens) for step in steps
        ]
        return [
            [step.ends_at for step in steps],
            tokens,
            [(each.all_tokens(), [*each.gaps], each.chunks) for each in jobs],
        ]

    one_by_one = Scheduler(flags, TOY)
    one_by_one._batch = _JobByJob(flags.block_size)
    assert trace(Scheduler(flags, TOY)) == trace(one_by_one)


@settings(max_examples=100)
@given(engines(), ARRIVALS, st.integers(1, 30))
def test_skipped_steps_end_when_single_ones_do_and_by_the_given_time(
    flags: EngineFlags, arrivals: list[Arrival], most: int
) -> None:
    def times(skips: bool) -> list[float]:
        scheduler, now = Scheduler(flags, TOY), 0.0
        jobs = [job(each.prompt, each.output, first=each.first) for each in arrivals]
        for each in jobs:
            scheduler.submit(each, now)
        while scheduler.waiting or scheduler.running:
            until = now + most * TOY.overhead_seconds
            if skips:
                now = scheduler.skip(now, until)
                assert now <= until
            now = run_step(scheduler, now).ends_at
        return [time or 0 for each in jobs for time in (each.first_token_at, each.last_token_at, each.preemptions)]

    assert times(skips=True) == pytest.approx(times(skips=False), rel=1e-9)


@pytest.mark.parametrize(
    "prompt, cached",
    [
        pytest.param(3, 0, id="less than a block"),
        pytest.param(4, 0, id="one block, whose last token must be computed"),
        pytest.param(5, 4, id="one block and one token"),
        pytest.param(40, 36, id="ten blocks, all but the last"),
        pytest.param(43, 40, id="ten blocks and a part"),
    ],
)
def test_a_repeated_prompt_hits_whole_blocks_and_never_its_last_token(prompt: int, cached: int) -> None:
    scheduler = Scheduler(PLAIN, TOY)
    (first, second), _ = play(scheduler, [Arrival(0, prompt, 4, 0), Arrival(9, prompt, 4, 0)])
    assert (first.cached, second.cached) == (0, cached)


@pytest.mark.parametrize(
    "flags, first",
    [
        pytest.param(PLAIN, 1, id="another first token, although the rest is equal"),
        pytest.param(replace(PLAIN, enable_prefix_caching=False), 0, id="without prefix caching"),
    ],
)
def test_nothing_is_cached_with(flags: EngineFlags, first: int) -> None:
    jobs, _ = play(Scheduler(flags, TOY), [Arrival(0, 40, 1, 0), Arrival(5, 40, 1, first)])
    assert [each.cached for each in jobs] == [0, 0]


def test_two_equal_prompts_in_one_step_share_their_blocks() -> None:
    scheduler = Scheduler(PLAIN, TOY)
    one, two = job(17, 8), job(17, 8)
    scheduler.submit(one, 0.0)
    scheduler.submit(two, 0.0)
    scheduler.step(0.0)
    assert two.cached == 16
    assert one.blocks[:4] == two.blocks[:4]
    assert one.blocks[4] != two.blocks[4]


def test_the_next_turn_of_a_conversation_hits_the_completion_too() -> None:
    scheduler = Scheduler(PLAIN, TOY)
    (turn,), _ = play(scheduler, [Arrival(0, 10, 11, 0)])
    following = Job(
        tokens=[*turn.all_tokens(), 1, 2, 3],
        prompt_length=24,
        output_length=1,
        finish=FinishReason.STOP,
        generate=lambda index: index,
    )
    scheduler.submit(following, 0.0)
    scheduler.step(0.0)
    assert following.cached == 20


def test_a_full_cache_preempts_the_last_admitted_job_which_is_readmitted_first() -> None:
    flags = replace(PLAIN, num_gpu_blocks=17, enable_prefix_caching=False)
    scheduler = Scheduler(flags, TOY)
    old, young, behind = job(30, 20), job(30, 20), job(4, 2)
    for each in (old, young, behind):
        scheduler.submit(each, 0.0)
    preempted: list[Job] = []
    finished: list[Job] = []
    while scheduler.running or scheduler.waiting:
        step = scheduler.step(0.0)
        assert step is not None
        if step.preempted:
            assert scheduler.waiting[0] is young
        preempted += step.preempted
        finished += [token.job for token in step.tokens if token.finish]
    assert preempted == [young]
    assert young.preemptions == 1
    assert finished[0] is old
    assert {*finished} == {old, young, behind}


def test_a_long_prompt_is_computed_in_chunks_beside_the_decodes() -> None:
    scheduler = Scheduler(replace(PLAIN, max_num_batched_tokens=16, max_num_seqs=4), TOY)
    decoding, long = job(2, 20), job(40, 2)
    scheduler.submit(decoding, 0.0)
    scheduler.step(0.0)
    scheduler.submit(long, 0.0)
    shares = []
    for _ in range(4):
        step = run_step(scheduler, 0.0)
        shares.append((step.scheduled[decoding], step.scheduled[long], len(step.tokens)))
    assert shares == [(1, 15, 1), (1, 15, 1), (1, 10, 2), (1, 1, 2)]


@pytest.mark.parametrize(
    "reserve, admitted",
    [
        pytest.param(True, False, id="the whole prompt must fit"),
        pytest.param(False, True, id="its first chunk must fit"),
    ],
)
def test_a_long_prompt_beside_a_full_cache_is_admitted_by_its_length_or_by_its_first_chunk(
    reserve: bool, admitted: bool
) -> None:
    flags = replace(PLAIN, max_num_batched_tokens=16, num_gpu_blocks=17, scheduler_reserve_full_isl=reserve)
    scheduler = Scheduler(flags, TOY)
    scheduler.submit(job(15, 8), 0.0)
    scheduler.step(0.0)
    long = job(60, 2, first=1)
    scheduler.submit(long, 0.0)
    step = scheduler.step(0.0)
    assert step is not None
    assert (long in step.scheduled) is admitted


def test_without_chunked_prefill_a_prompt_waits_for_a_step_that_takes_it_whole() -> None:
    scheduler = Scheduler(replace(PLAIN, enable_chunked_prefill=False), TOY)
    first, second = job(40, 2), job(40, 2, first=1)
    scheduler.submit(first, 0.0)
    scheduler.submit(second, 0.0)
    one, two = run_step(scheduler, 0.0), run_step(scheduler, 0.0)
    assert one.scheduled == {first: 40}
    assert two.scheduled == {first: 1, second: 40}


def test_an_idle_engine_has_no_step() -> None:
    assert Scheduler(PLAIN, TOY).step(0.0) is None


@pytest.mark.parametrize(
    "tokens, context, milliseconds",
    [
        pytest.param(1, 0, 1.5 + 29.17, id="one decode waits for the weights"),
        pytest.param(128, 0, 1.5 + 29.17, id="a full batch costs the same but for its context"),
        pytest.param(2048, 2048, 1.5 + 315.08 + 0.42, id="a chunk of a prompt waits for the arithmetic"),
        pytest.param(128, 56_992, 1.5 + 29.17 + 11.67, id="a full cache is read once a step"),
    ],
)
def test_the_duration_of_a_step_follows_the_roofline(tokens: int, context: int, milliseconds: float) -> None:
    seconds = PRESETS["rtx6000ada-qwen2.5-14b"].step_seconds(tokens=tokens, context=context)
    assert 1000 * seconds == pytest.approx(milliseconds, rel=0.001)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_has_consistent_flags(preset: Preset) -> None:
    assert apply_changes(preset_flags(preset), {}) == preset_flags(preset)
