"""With `--scheduling-policy priority`, lower values are served first and preempted last, as in vLLM."""

from collections.abc import Sequence

import pytest

from compose.simulator.engine.flags import SchedulingPolicy, apply_changes, preset_flags
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.scheduler import Scheduler
from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import PRESETS

TOY = PRESETS["toy"]
PLAIN = apply_changes(
    preset_flags(TOY), {"max_model_len": 64, "num_gpu_blocks": 64, "block_size": 4, "max_num_batched_tokens": 64}
)


def job(priority: int, prompt: int = 8, output: int = 4) -> Job:
    return Job(
        tokens=[*range(prompt)],
        prompt_length=prompt,
        output_length=output,
        finish=FinishReason.LENGTH,
        generate=lambda index: 1000 + index,
        priority=priority,
    )


def scheduler(policy: str, **changes: int) -> Scheduler:
    return Scheduler(
        apply_changes(PLAIN, {"scheduling_policy": policy, "enable_prefix_caching": False, **changes}), TOY
    )


def admitted(policy: str, priorities: Sequence[int]) -> list[int]:
    """The numbers of jobs that arrive one after the other, in the order in which one slot serves them."""
    engine = scheduler(policy, max_num_seqs=1)
    jobs = [job(priority) for priority in priorities]
    for number, each in enumerate(jobs):
        engine.submit(each, float(number))
    order, now = [], 10.0
    while (step := engine.step(now)) is not None:
        order += [jobs.index(each) for each in step.admitted]
        now = step.ends_at
    return order


@pytest.mark.parametrize(
    "policy, priorities, order",
    [
        pytest.param("fcfs", [1, 0, -1, 0], [0, 1, 2, 3], id="arrival"),
        pytest.param("priority", [1, 0, -1, 0], [2, 1, 3, 0], id="priority, then arrival"),
        pytest.param("priority", [2, 2, 2], [0, 1, 2], id="equal priorities"),
    ],
)
def test_waiting_jobs_are_admitted_in_order(policy: str, priorities: list[int], order: list[int]) -> None:
    assert admitted(policy, priorities) == order


@pytest.mark.parametrize("policy, victim", [("fcfs", 1), ("priority", 0)])
def test_a_full_cache_preempts_the_last_job_or_that_of_the_lowest_priority(policy: str, victim: int) -> None:
    engine = scheduler(policy, num_gpu_blocks=17, block_size=4)  # 64 tokens for two jobs of 44
    jobs = [job(1, prompt=24, output=20), job(0, prompt=24, output=20)]
    preempted, ended, now = [], [], 0.0
    for number, each in enumerate(jobs):
        engine.submit(each, float(number))
        step = engine.step(now)
        assert step is not None
        now = step.ends_at
    while (step := engine.step(now)) is not None:
        preempted += [jobs.index(each) for each in step.preempted]
        ended += [jobs.index(token.job) for token in step.tokens if token.finish is not None]
        now = step.ends_at
    assert (preempted, ended) == ([victim], [1 - victim, victim])
    assert [each.generated for each in jobs] == [20, 20]
    assert engine.pool.free == engine.pool.capacity


def test_another_policy_is_refused() -> None:
    with pytest.raises(EngineFlagsError) as refusal:
        apply_changes(PLAIN, {"scheduling_policy": "lottery"})
    assert refusal.value.mistakes == ["scheduling_policy: 'lottery' is unknown; known: fcfs, priority"]
    assert PLAIN.scheduling_policy is SchedulingPolicy.FCFS
