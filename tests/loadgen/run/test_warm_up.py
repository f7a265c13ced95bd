"""The warm-up ramp: waves of requests at once before a run, cold and warm, that are not part of its figures."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from exporters.text.yaml_reader import parse_yaml
from loadgen.results.record import ClientOutcome
from loadgen.run import warm_up
from loadgen.schedule import scenario
from loadgen.schedule.requests import Workload
from tests.loadgen.load_process import finished_load, load, write_scenario
from tests.loadgen.load_records import record
from tests.loadgen.run_flags import refusal


def ramp(planned: warm_up.Waves) -> warm_up.Waves:
    """The waves before those of the shared texts."""
    return [wave for wave in planned if wave[0] != warm_up.SHARED]


def test_the_waves_double_and_are_the_same_cold_and_warm_except_for_their_texts() -> None:
    planned = ramp(warm_up.waves(scenario.load(scenario.find("mixed")), 64, 67))
    assert [(name, len(requests)) for name, requests in planned] == [
        (name, size) for name in ("cold", "warm") for size in (1, 2, 4, 8, 16, 32, 64)
    ]
    assert all(request.stream and request.due == 0 and not request.later for _, wave in planned for request in wave)
    half = len(planned) // 2
    cold, warm = ([request for _, wave in part for request in wave] for part in (planned[:half], planned[half:]))
    assert {each.request_class for each in (*cold, *warm)} == {"warm-up"}
    lengths = [[(each.prompt_tokens, each.max_tokens, each.endpoint) for each in requests] for requests in (cold, warm)]
    assert lengths[0] == lengths[1]
    assert {most for _, most, _ in lengths[0]} == {warm_up.MOST_OUTPUT}
    prompts = [request.prompt for request in (*cold, *warm)]
    assert len({prompt[:60] for prompt in prompts}) == len(prompts)  # none is a prefix that another can reuse


@pytest.mark.parametrize("largest, sizes", [(1, [1]), (5, [1, 2, 4])])
def test_the_largest_wave_is_the_last_power_of_two(largest: int, sizes: list[int]) -> None:
    planned = warm_up.waves(scenario.load(scenario.find("mixed")), largest, 0)
    assert [len(requests) for name, requests in planned if name == "cold"] == sizes


SHARING = """
name: sharing
seed: 3
chat_share: {chat}
corpus: [80, 90]
classes:
  long: {{share: 1, prompt_tokens: {{min: 5, max: 5}}, output_tokens: {{min: 4, max: 4}}, document: true}}
  other: {{share: 1, prompt_tokens: {{min: 6, max: 6}}, output_tokens: {{min: 4, max: 4}}, document: true}}
  unused: {{share: 0, prompt_tokens: {{min: 5, max: 5}}, output_tokens: {{min: 4, max: 4}}, document: true}}
  talk:
    share: 1
    prompt_tokens: {{min: 5, max: 5}}
    output_tokens: {{min: 4, max: 4}}
    conversation:
      turns: {{min: 1, max: 2}}
      think_time: {{min: 1s, max: 1s}}
      starters: {{count: {starters}, tokens: {{min: 70, max: 75}}}}
phases: [{{name: one, duration: 100s, rate: 5}}]
"""


@pytest.mark.parametrize("chat", [0, 0.5, 1])
def test_every_prompt_of_the_run_begins_with_a_text_that_the_warm_up_has_sent(chat: float) -> None:
    load = scenario.parse(parse_yaml(SHARING.format(chat=chat, starters=3), "load"))
    waves = [requests for name, requests in warm_up.waves(load, 4, 3) if name == warm_up.SHARED]
    shared = [request for wave in waves for request in wave]
    assert [len(wave) for wave in waves[:-1]] == [4] * (len(waves) - 1)
    assert {each.max_tokens for wave in ramp(warm_up.waves(load, 4, 3)) for each in wave[1]} == {4}
    assert {(each.max_tokens, each.due, each.phase, each.stream) for each in shared} == {(1, 0.0, "warm-up", True)}
    sent = [(each.endpoint, each.prompt) for each in shared]
    assert len(set(sent)) == len(sent) == 3 + 2 * (1 if chat in (0, 1) else 2)
    for request in Workload(load, load.phases, 3):
        assert any(request.endpoint == endpoint and request.prompt.startswith(text) for endpoint, text in sent)


def test_of_many_shared_texts_the_most_frequent_are_sent() -> None:
    load = scenario.parse(parse_yaml(SHARING.format(chat=1, starters=1000), "load"))
    shared = [request for name, wave in warm_up.waves(load, 8, 3) if name == warm_up.SHARED for request in wave]
    assert len(shared) == warm_up.MOST_SHARED + 2
    first = next(request for request in shared if request.prompt_tokens <= 75)  # documents have 80 or more
    assert sum(request.prompt.startswith(first.prompt) for request in Workload(load, load.phases, 3)) > 5


def test_each_wave_is_sent_after_the_one_before_has_ended_and_none_after_a_stop(tmp_path: Path) -> None:
    planned = ramp(warm_up.waves(scenario.load(scenario.find("mixed")), 4, 0))
    sizes: list[int] = []

    def send(requests: Any) -> list[Any]:
        sizes.append(len(requests))
        return [record(number=request.number, ttft=0.1) for request in requests]

    warm_up.run(planned, send, tmp_path, lambda: len(sizes) == 4)
    assert sizes == [1, 2, 4, 1]
    saved = json.loads((tmp_path / "warm-up.json").read_text())
    assert [(wave["pass"], wave["size"], len(wave["records"])) for wave in saved] == [
        ("cold", 1, 1), ("cold", 2, 2), ("cold", 4, 4), ("warm", 1, 1)
    ]  # fmt: skip


def test_the_table_has_the_ttft_of_each_size_cold_and_warm() -> None:
    shown = io.StringIO()
    waves = [
        warm_up.Wave("cold", 1, [record(ttft=0.9)]),
        warm_up.Wave("cold", 2, [record(ttft=0.2), record(outcome=ClientOutcome.TIMEOUT)]),
        warm_up.Wave("warm", 1, [record(ttft=0.3)]),
        warm_up.Wave("shared", 2, [record(ttft=0.5), record(ttft=0.7)]),
        warm_up.Wave("shared", 1, [record(ttft=0.6)]),
    ]
    Console(file=shown, width=120).print(warm_up.table(waves))
    rows = [line.split() for line in shown.getvalue().splitlines()[-4:]]
    assert ["3", "shared", "texts", "600", "ms", "700", "ms", "-", "-", "-", "0"] in rows
    assert ["1", "900", "ms", "900", "ms", "300", "ms", "300", "ms", "3.00", "0"] in rows
    assert ["2", "200", "ms", "200", "ms", "-", "-", "-", "1"] in rows


def test_a_folder_without_a_warm_up_shows_nothing_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    shown = io.StringIO()
    warm_up.show(tmp_path, Console(file=shown))
    assert shown.getvalue() == ""
    (tmp_path / "warm-up.json").write_text("{}")
    assert refusal(lambda: warm_up.show(tmp_path, Console(file=shown))) == (
        f"{tmp_path / 'warm-up.json'}: not the warm-up of a run: Expected `array`, got `object`"
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_warm_up_comes_before_the_run_and_is_not_part_of_its_figures(tmp_path: Path, workers: str) -> None:
    path = write_scenario(tmp_path, "siso", rate=20, duration="500ms")
    done = finished_load(path, "--warm-up", "4", "--workers", workers)
    assert (done.status, done.errors) == (0, "")
    out, requests, records = done.out, done.requests, done.records
    waves = json.loads((out / "warm-up.json").read_text())
    assert [(wave["pass"], wave["size"]) for wave in waves] == [
        (name, size) for name in ("cold", "warm") for size in (1, 2, 4)
    ]
    ids = [each["request_id"] for wave in waves for each in wave["records"]]
    assert {each["phase"] for wave in waves for each in wave["records"]} == {"warm-up"}
    assert {request["x-request-class"] for request in requests[:14]} == {"warm-up"}
    assert {request["x-request-class"] for request in requests[14:]} == {"siso"}
    assert sorted(ids) == sorted(request["x-request-id"] for request in requests[:14])
    position = {request["x-request-id"]: index for index, request in enumerate(requests)}
    ends = 0
    for wave in waves:  # each wave is received after the one before
        assert sorted(position[each["request_id"]] for each in wave["records"]) == list(
            range(ends, ends + wave["size"])
        )
        ends += wave["size"]
    assert {each.phase for each in records} == {"one"}
    assert len(records) == len(requests) - 14
    summary = json.loads((out / "summary.json").read_text())
    assert summary["total"]["offered"] == len(records)
    assert "warm-up: TTFT of requests at once, not part of the figures" in done.shown
    assert load("report", str(out)).stdout == done.shown


@pytest.mark.slow
def test_a_replay_has_no_warm_up(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,prompt_tokens,output_tokens\n0,10,10\n")
    process = load(
        "replay", "--trace", str(trace), "--target", "http://127.0.0.1:1", "--out", str(tmp_path), "--warm-up", "4"
    )
    assert (process.returncode, process.stderr) == (
        2,
        "vllm-slo: --warm-up: needs a scenario, whose classes give the prompts; a trace has no other ones\n",
    )
