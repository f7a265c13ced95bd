"""Draft tokens: how many a step accepts, what they cost, and what the engine reports of them."""

import json
from dataclasses import replace

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.engine.flags import apply_changes, preset_flags
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.scheduler import Scheduler, Step
from compose.simulator.presets.preset import PRESETS
from compose.simulator.presets.speculative_decoding import DraftModel, Speculation, independent
from exporters.engines.exposition import parse_exposition
from exporters.engines.table_schema import plain_name
from tests.support.simulator import simulator

TOY = PRESETS["toy"]
FLAGS = preset_flags(TOY)
T4 = PRESETS["t4-qwen2.5-0.5b"]


@pytest.mark.parametrize(
    "acceptance, tokens, expected",
    [
        pytest.param(0.0, 5, 1.0, id="no draft token is accepted"),
        pytest.param(0.8, 5, (1 - 0.8**6) / (1 - 0.8), id="five tokens at 0.8"),
        pytest.param(0.5, 1, 1.5, id="one token at 0.5"),
        pytest.param(1.0, 4, 5.0, id="all are accepted"),
    ],
)
def test_the_expected_tokens_of_a_step_are_those_of_leviathan(acceptance: float, tokens: int, expected: float) -> None:
    speculation = Speculation(rates=independent(acceptance, tokens))
    assert 1 + sum(speculation.rates) == pytest.approx(expected)
    uniform = [(index + 0.5) / 100_000 for index in range(100_000)]
    assert 1 + sum(speculation.accepted(tokens, each) for each in uniform) / len(uniform) == pytest.approx(expected)


def play(speculation: Speculation | None, *, output: int = 2000, seed: int = 0) -> tuple[Job, list[Step]]:
    """One request until its end."""
    flags = apply_changes(FLAGS, {"seed": seed})
    scheduler = Scheduler(flags, replace(TOY, speculation=speculation))
    job = Job([*range(20)], 20, output, FinishReason.LENGTH, lambda index: 1000 + index)
    scheduler.submit(job, 0.0)
    steps = []
    while (step := scheduler.step(0.0)) is not None:
        steps.append(step)
    return job, steps


def test_the_scheduler_yields_the_expected_tokens_per_step() -> None:
    speculation = Speculation(rates=independent(0.7, 4))
    _, steps = play(speculation, output=4000)
    drafts = [token for step in steps for token in step.tokens if token.drafted]
    found = sum(1 + token.accepted for token in drafts) / len(drafts)
    assert found == pytest.approx(1 + sum(speculation.rates), rel=0.05)


@given(st.floats(0, 1), st.integers(1, 8), st.integers(1, 50))
def test_drafts_change_the_steps_and_not_the_output(acceptance: float, tokens: int, output: int) -> None:
    plain, plain_steps = play(None, output=output)
    job, steps = play(Speculation(rates=independent(acceptance, tokens)), output=output)
    assert job.all_tokens() == plain.all_tokens()
    assert len(steps) <= len(plain_steps)
    assert job.chunks == len(steps)
    for step in steps[1:]:
        (token,) = step.tokens
        assert step.scheduled[job] == 1 + token.drafted
        assert token.count <= 1 + token.accepted <= 1 + token.drafted


def test_a_seed_gives_the_same_steps() -> None:
    speculation = Speculation(rates=independent(0.5, 4))
    counts = [[token.count for step in play(speculation, seed=seed)[1] for token in step.tokens] for seed in (1, 1, 2)]
    assert counts[0] == counts[1] != counts[2]


def test_no_draft_leaves_the_context_of_the_model() -> None:
    _, steps = play(Speculation(rates=independent(1.0, 8)), output=FLAGS.max_model_len - 20)
    ends = 0
    for step in steps:
        ends += sum(token.count for token in step.tokens)
        assert all(20 + ends - token.count + token.drafted < FLAGS.max_model_len for token in step.tokens)
    assert ends == FLAGS.max_model_len - 20


@pytest.mark.parametrize(
    "acceptance, requests, faster",
    [
        pytest.param(0.1, 50, False, id="rejected drafts of 50 requests are compute-bound"),
        pytest.param(0.8, 50, True, id="accepted drafts pay for their arithmetic"),
        pytest.param(0.8, 10, True, id="with 10 requests reading the weights takes longer than the arithmetic"),
    ],
)
def test_drafts_pay_off_where_their_arithmetic_is_hidden_or_accepted(
    acceptance: float, requests: int, faster: bool
) -> None:
    speculation = Speculation(rates=independent(acceptance, 5))
    plain = T4.step_seconds(tokens=requests, context=requests * 768)
    drafted = T4.step_seconds(tokens=requests * 6, context=requests * 768) / (1 + sum(speculation.rates))
    assert (drafted < plain) is faster


def test_a_draft_model_runs_once_for_each_draft_token() -> None:
    draft = DraftModel(weight_bytes=1e5, kv_bytes_per_token=10, flop_per_token=1e5)
    preset = replace(TOY, speculation=Speculation(rates=independent(0.5, 3), draft=draft))
    weights, attention = 1e5 / 1e9, 200 * 10 / 1e9
    assert preset.draft_seconds(requests=2, context=200) == pytest.approx(3 * (weights + attention))
    assert TOY.draft_seconds(requests=2, context=200) == 0
    assert replace(TOY, speculation=Speculation(rates=(0.5,))).draft_seconds(requests=2, context=200) == 0


COUNTERS = ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_stream_has_the_same_text_in_fewer_events_and_the_engine_counts_its_drafts(path: str) -> None:
    body = {"model": "tiny", "max_tokens": 101, "ignore_eos": True, "stream": True, "seed": 1}
    talk = {"messages": [{"role": "user", "content": "hi"}]}
    body |= {"input": "hi", "max_output_tokens": 101} if path == "/v1/responses" else talk
    texts, events, numbers = [], [], []
    for speculation in (None, Speculation(rates=(1.0,) * 4)):
        async with simulator(preset=replace(TOY, speculation=speculation)) as url, aiohttp.ClientSession(url) as client:
            async with client.post(path, json=body) as response:
                lines = (await response.text()).splitlines()
            async with client.get("/metrics") as response:
                names = [f"vllm:spec_decode_num_{name}_total" for name in COUNTERS]
                found = parse_exposition(await response.text(), frozenset(map(plain_name, names)))
        data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        pieces = [piece for each in data if (piece := delta(each))]
        texts.append("".join(pieces))
        events.append(len(pieces))
        numbers = [each["sequence_number"] for each in data if "sequence_number" in each]
        assert numbers == list(range(len(numbers)))
        counts = [sum(found.samples_of(name).values()) for name in names]
        assert counts == ([20, 80, 80, 80] if speculation else [0, 0, 0, 0])
    assert texts[0] == texts[1]
    assert events == [101, 21]  # the prefill gives one token, each of 20 steps five


def delta(event: dict[str, object]) -> str:
    """The text of an event of any of the APIs."""
    match event:
        case {"choices": [{"delta": {"content": str(text)}}]} | {"delta": {"text": str(text)}} | {"delta": str(text)}:
            return text
    return ""
