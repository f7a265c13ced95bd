"""A load in virtual time follows the rules of the load generator."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.experiments.cells.virtual_fleet import VirtualFleet
from compose.experiments.cells.virtual_run import VirtualLoad, VirtualRun
from compose.simulator.api.response_cache import HIT_SECONDS
from compose.simulator.engine.flags import EngineFlags, preset_flags
from compose.simulator.presets.preset import PRESETS
from exporters.text.yaml_reader import parse_yaml
from exporters.vocabulary import slo_file
from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule import scenario
from loadgen.schedule.requests import Workload

TOY = PRESETS["toy"]
FLAGS = preset_flags(TOY)
SHAPE = "share: 1, prompt_tokens: {min: 10, max: 400}, output_tokens: {min: 1, max: 60}"
TALK = "conversation: {turns: {min: 1, max: 4}, think_time: {min: 1s, max: 3s}}"


def run(
    phase: str,
    *,
    more: str = "",
    head: str = "",
    timeout: str = "30s",
    limit: int | None = None,
    seed: int = 0,
    outage: tuple[float, float] | None = None,
    flags: EngineFlags = FLAGS,
) -> list[Record]:
    """The records of one phase of requests with this shape."""
    text = (
        f"{head}name: small\nseed: {seed}\ntimeout: {timeout}\nclasses: {{chat: {{{SHAPE}{more}}}}}\n"
        f"phases: [{{name: one, {phase}}}]\n"
    )
    load = scenario.parse(parse_yaml(text, "load"))
    records: list[Record] = []
    virtual = VirtualLoad(
        schedule=Workload(load, load.phases, load.seed),
        phases=load.phases,
        slos=slo_file.load(slo_file.SHIPPED),
        timeout=load.timeout,
        timeouts=load.timeouts,
        max_concurrency=limit,
        outage=outage,
    )
    fleet = VirtualFleet(flags, TOY)
    VirtualRun(fleet, virtual, lambda record, _: records.append(record), lambda *_: None).run()
    return records


def most_at_once(records: list[Record]) -> int:
    """The largest number of requests on the way; one that ends when another starts frees its slot first."""
    events = sorted(
        (at, change)
        for record in records
        if record.sent is not None
        for at, change in ((record.sent, 1), (record.closed, -1))
    )
    open_now = most = 0
    for _, change in events:
        open_now += change
        most = max(most, open_now)
    return most


def test_a_class_can_have_a_timeout_of_its_own() -> None:
    alone = run("duration: 1s, requests: 40", timeout="30s")
    cut = run("duration: 1s, requests: 40", timeout="30s", more=", timeout: 50ms")
    assert {record.outcome for record in alone} == {ClientOutcome.OK}
    late = [record for record in cut if record.outcome is ClientOutcome.TIMEOUT]
    assert late
    assert [record.closed - record.due for record in late] == pytest.approx([0.05] * len(late))


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(0, 100))
def test_at_most_max_concurrency_requests_are_on_the_way_in_the_order_of_their_due_times(limit: int, seed: int) -> None:
    records = run("duration: 2s, rate: 60", limit=limit, seed=seed)
    assert most_at_once(records) <= limit
    sent = sorted(
        (record for record in records if record.sent is not None), key=lambda record: (record.due, record.number)
    )
    assert all(earlier.sent <= later.sent for earlier, later in pairwise(sent) if earlier.sent and later.sent)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 100))
def test_a_turn_is_due_after_the_end_of_the_turn_before_and_its_think_time(seed: int) -> None:
    records = run("duration: 20s, rate: 2", more=f", {TALK}", seed=seed)
    turns: dict[int, list[Record]] = {}
    for record in records:
        turns.setdefault(record.number, []).append(record)
    for conversation in turns.values():
        assert [record.turn for record in conversation] == list(range(len(conversation)))
        for before, after in pairwise(conversation):
            assert 1 - 1e-5 <= after.due - before.closed <= 3 + 1e-5
            assert after.asked_prompt_tokens >= before.asked_prompt_tokens + before.max_tokens
    assert all(record.due < 20 for record in records)


def test_users_send_their_next_request_at_the_end_of_the_last_one() -> None:
    records = run("duration: 5s, users: 3")
    assert most_at_once(records) == 3
    ends = {record.closed for record in records}
    assert all(record.due == 0 or record.due in ends for record in records)


def test_requests_time_out_from_their_due_time_also_while_they_wait_for_a_slot() -> None:
    records = run("duration: 1s, requests: 40", timeout="100ms", limit=2)
    late = [record for record in records if record.outcome is not ClientOutcome.OK]
    assert {record.outcome for record in late} == {ClientOutcome.TIMEOUT, ClientOutcome.NOT_SENT}
    assert all(record.e2e == pytest.approx(0.1) for record in late)
    unsent = [record for record in late if record.outcome is ClientOutcome.NOT_SENT]
    assert {record.error for record in unsent} == {"no slot of max_concurrency 2 in time"}


def test_a_prompt_above_the_context_is_rejected_and_frees_its_slot() -> None:
    records = run("duration: 1s, requests: 300", more=", document: true", head="corpus: [5000]\n", limit=1)
    assert {(record.outcome, record.status) for record in records} == {(ClientOutcome.CLIENT_ERROR, 400)}
    assert len(records) == 300


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 100))
def test_the_times_of_a_request_are_in_order_and_its_engine_times_add_up(seed: int) -> None:
    for record in run("duration: 2s, rate: 40", seed=seed):
        assert record.outcome is ClientOutcome.OK
        assert record.completion_tokens == record.max_tokens
        parts = (record.queue, record.prefill, record.decode)
        assert record.e2e_sent == pytest.approx(sum(part or 0.0 for part in parts), abs=1e-4)
        if record.first is not None and record.last is not None:
            assert record.due <= record.first <= record.last == record.closed


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 100), st.integers(1, 3))
def test_a_response_cache_answers_a_body_that_has_been_answered_before_at_once_and_in_full(
    seed: int, prompts: int
) -> None:
    head = "stream_share: 0.5\n"
    flags = replace(FLAGS, response_cache=True)
    records = run("duration: 10s, rate: 20", head=head, more=f", prompts: {prompts}", seed=seed, flags=flags)
    answered: dict[tuple[str, bool, int, int], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.due):
        body = (record.endpoint, record.stream, record.asked_prompt_tokens, record.max_tokens)
        earlier = answered.setdefault(body, [])
        assert record.outcome is ClientOutcome.OK
        assert record.completion_tokens == record.max_tokens
        # Requests that arrive before the first response of their body has ended are computed too.
        if any(other.closed < record.due for other in earlier):
            assert record.e2e == pytest.approx(HIT_SECONDS, abs=2e-6)
            assert (record.prompt_tokens, record.finish_reason) == (earlier[0].prompt_tokens, "length")
            assert record.chunks == (record.max_tokens if record.stream else 0)
        else:
            assert record.e2e is not None
            assert record.e2e != pytest.approx(HIT_SECONDS, abs=2e-6)
        earlier.append(record)
    assert len(answered) <= 4 * prompts  # as a stream and not, on two endpoints


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 100))
def test_in_an_outage_open_streams_end_and_new_requests_get_an_error_of_the_sidecar(seed: int) -> None:
    records = run("duration: 6s, rate: 40", head="stream_share: 0.5\n", seed=seed, outage=(2.0, 4.0))
    failed = [record for record in records if record.outcome is not ClientOutcome.OK]
    for record in failed:
        assert 2 <= record.closed < 4
        if record.due < 2 and record.stream:
            assert (record.outcome, record.status) == (ClientOutcome.TRUNCATED, 200)
        else:
            assert (record.outcome, record.status) == (ClientOutcome.UPSTREAM_ERROR, 502)
    assert {record.number for record in records if 2 <= record.due < 4} <= {record.number for record in failed}
    assert any(record.due >= 4 for record in records)


def test_after_an_outage_the_prefix_cache_is_empty() -> None:
    head = "corpus: [400]\nchat_share: 1\n"
    load = "duration: 6s, rate: 2, arrivals: constant"
    through, restarted = (
        sorted(run(load, head=head, more=", document: true", outage=outage), key=lambda record: record.due)
        for outage in (None, (2.0, 2.1))
    )
    assert [bool(record.cached_tokens) for record in through] == [False] + 11 * [True]
    assert sum(not record.cached_tokens for record in restarted if record.outcome is ClientOutcome.OK) == 2
