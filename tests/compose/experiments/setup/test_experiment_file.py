"""An experiment file is read in full, and all of its mistakes are reported at once."""

from pathlib import Path

import pytest

from compose.experiments.cells import simulated_engine
from compose.experiments.setup import experiment_file
from compose.experiments.setup.cell_store import Direction, ExpectedFigure, Metric, Prediction
from compose.experiments.setup.level import Level
from exporters.text.errors import UsageError
from exporters.text.yaml_reader import parse_yaml
from exporters.vocabulary import slo_file
from loadgen.schedule import scenario
from loadgen.schedule.phases import ClosedLoop, Steady
from loadgen.schedule.requests import Workload, schedule_hash
from tests.compose.experiments.toy_experiment import HEAD, LOAD, mistakes, write_experiment

INVALID = Path(__file__).parents[1] / "invalid" / "experiment.yaml"


def test_optional_keys_have_defaults(tmp_path: Path) -> None:
    read = experiment_file.load(write_experiment(tmp_path))
    assert (read.name, read.rates, read.requests, read.repeats, read.max_concurrency) == ("small", (), None, 1, None)
    assert (read.cool_down, read.predictions, read.expected) == (0.0, (), ())
    assert {engine.warm_up for engine in read.configurations.values()} == {None}
    assert read.slos == experiment_file.DEFAULT_SLOS.read_text()


def test_a_configuration_has_the_default_flags_that_it_does_not_set(tmp_path: Path) -> None:
    read = experiment_file.load(write_experiment(tmp_path))
    assert {name: (engine.preset, engine.flags) for name, engine in read.configurations.items()} == {
        "base": ("toy", {"enable-prefix-caching": "false"}),
        "prefix": ("toy", {"enable-prefix-caching": "true"}),
    }


def test_a_configuration_can_have_a_warm_up_of_its_own(tmp_path: Path) -> None:
    head = HEAD.replace("base: {}", "base: {warm_up: 2}")
    read = experiment_file.load(write_experiment(tmp_path, head=head, more="warm_up: 8\n"))
    assert {name: engine.warm_up for name, engine in read.configurations.items()} == {"base": 2, "prefix": 8}


def test_predictions_and_expected_figures_are_read(tmp_path: Path) -> None:
    more = """\
rates: [2]
predictions:
  - {configuration: prefix, class: long, metric: ttft_p50, rate: 2, baseline: base, direction: lower}
  - {configuration: prefix, metric: hit_ratio, low: 0.5}
expected: [{configuration: base, metric: completion, value: 0.21, note: a note}]
"""
    read = experiment_file.load(write_experiment(tmp_path, more=more))
    assert read.predictions == (
        Prediction(
            configuration="prefix",
            request_class="long",
            metric=Metric.TTFT_P50,
            rate=2,
            baseline="base",
            direction=Direction.LOWER,
        ),
        Prediction(configuration="prefix", metric=Metric.HIT_RATIO, low=0.5),
    )
    assert read.expected == (ExpectedFigure(configuration="base", metric=Metric.COMPLETION, value=0.21, note="a note"),)


def _scenario(experiment: experiment_file.Experiment, level: Level, repeat: int = 1) -> scenario.Scenario:
    return scenario.parse(parse_yaml(experiment.load_of(level, repeat), "load"))


def test_a_rate_replaces_that_of_the_phase_and_requests_its_length(tmp_path: Path) -> None:
    experiment = experiment_file.load(write_experiment(tmp_path, more="rates: [4, 8]\nrequests: 32\n"))
    phases = [_scenario(experiment, level).phases for level in experiment.levels]
    assert phases == [(Steady("steady", 8, 4),), (Steady("steady", 4, 8),)]


def test_a_rate_counts_all_turns_of_conversations(tmp_path: Path) -> None:
    talk = "output_tokens: {min: 12, max: 52}, conversation: {turns: {min: 2, max: 4}, think_time: {min: 1s, max: 1s}}"
    load = LOAD.replace("output_tokens: {min: 12, max: 52}", talk)
    experiment = experiment_file.load(write_experiment(tmp_path, load=load, more="rates: [4]\n"))
    (phase,) = _scenario(experiment, Level(rate=4)).phases
    assert phase == Steady("steady", 5, 2)  # half of the arrivals have 3 requests, the others 1


USERS = LOAD.replace("rate: 10}]", "users: 3, think_time: 1s}]")


def test_a_concurrency_replaces_the_number_of_users(tmp_path: Path) -> None:
    more = """\
concurrencies: [2, 5]
expected: [{configuration: base, metric: completion, concurrency: 5, value: 1}]
"""
    experiment = experiment_file.load(write_experiment(tmp_path, load=USERS, more=more))
    phases = [_scenario(experiment, level).phases for level in experiment.levels]
    assert phases == [(ClosedLoop("steady", 5, 2, 1),), (ClosedLoop("steady", 5, 5, 1),)]
    assert [level.name for level in experiment.levels] == ["2-users", "5-users"]
    assert experiment.expected[0].concurrency == 5


def test_repeats_have_other_requests() -> None:
    experiment = experiment_file.load(experiment_file.find("seed-000"))
    hashes = []
    for repeat in (1, 2, 1):
        load = _scenario(experiment, Level(rate=32), repeat)
        hashes.append(schedule_hash(Workload(load, load.phases, load.seed)))
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize("name", experiment_file.names())
def test_built_in_experiments_are_valid_and_run_in_the_simulator(name: str) -> None:
    experiment = experiment_file.load(experiment_file.find(name))
    assert experiment.name == name
    simulated_engine.check(experiment)
    slo_file.loads(experiment.slos)


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    assert mistakes(INVALID) == [
        "1:1: the key description is missing",
        "1:7: name: 'Wrong Name' is not a valid name; use lower-case letters, digits, - and _, starting with a letter",
        (
            "4:9: configurations.Base: 'Base' is not a valid name; use lower-case letters, digits, - and _, starting "
            "with a letter"
        ),
        (
            "4:45: configurations.Base.flags.--max-num-seqs: '--max-num-seqs' is not the name of a flag; write "
            "'max-num-seqs'"
        ),
        (
            "5:43: configurations.prefix.flags.enable_prefix_caching: 'enable_prefix_caching' is not the name of a "
            "flag; write 'enable-prefix-caching'"
        ),
        "5:50: configurations.prefix.speed: unknown key; known: preset, flags, warm_up, replicas, routing, pools",
        "6:9: rates[0]: expected a number above 0, found '0'",
        "7:11: requests: expected a whole number of at least 1, found 'many'",
        "11:52: load.classes.siso.prompt_tokens.max: max '10' is below min '20'",
        "17:10: slos.slos[0]: threshold is missing; ttft needs one, such as threshold: 5s",
        "17:33: slos.slos[0].classes[0]: 'liso' is not a class of this file; did you mean 'siso'?",
        "19:57: predictions[0].direction: 'up' is unknown; known: higher, lower, same",
        "21:5: expected[0]: value is missing",
        (
            "21:37: expected[0].metric: 'goodness' is unknown; known: goodput, completion, valid_json, "
            "output_tokens_per_second, "
            "ttft_mean, ttft_p50, ttft_p99, tpot_p50, tpot_p99, itl_p50, itl_p99, e2e_p50, e2e_p99, preemptions, "
            "generated_tokens, kv_capacity_tokens, kv_usage_max, hit_ratio, waiting_max"
        ),
    ]


def test_keys_that_do_not_go_together_are_reported(tmp_path: Path) -> None:
    more = """\
requests: 3
predictions:
  - {configuration: prefx, class: shrt, metric: goodput, baseline: bas, direction: higher}
  - {configuration: prefix, metric: goodput}
expected: [{configuration: basis, class: all, metric: goodput, value: 1}]
"""
    assert mistakes(write_experiment(tmp_path, more=more)) == [
        "17:11: requests: needs rates; add them, or remove requests",
        "19:21: predictions[0].configuration: 'prefx' is not a configuration of this file; did you mean 'prefix'?",
        "19:35: predictions[0].class: 'shrt' is not a class of the load; did you mean 'short'?",
        "19:68: predictions[0].baseline: 'bas' is not a configuration of this file; did you mean 'base'?",
        "20:5: predictions[1]: needs baseline and direction, or low or high; write one of them",
        "21:28: expected[0].configuration: 'basis' is not a configuration of this file; did you mean 'base'?",
        "21:42: expected[0].class: 'all' is not a class of the load; known: short, long",
    ]


def test_rates_need_a_load_with_one_phase(tmp_path: Path) -> None:
    load = LOAD.replace("rate: 10}]", "rate: 10, end_rate: 20}]")
    assert mistakes(write_experiment(tmp_path, load=load, more="rates: [1]\n")) == [
        "17:8: rates: needs a load with a single phase of a constant rate, which the rates replace"
    ]


def test_concurrencies_need_a_load_with_users_and_figures_a_load_that_is_measured(tmp_path: Path) -> None:
    more = """\
concurrencies: [1, 10]
predictions: [{configuration: prefix, metric: goodput, rate: 2, baseline: base, direction: higher}]
expected: [{configuration: base, metric: goodput, value: 1, concurrency: 50}]
"""
    assert mistakes(write_experiment(tmp_path, more=more)) == [
        "17:16: concurrencies: needs a load with a single phase with users, whose number the concurrencies replace",
        "18:15: predictions[0]: at 2/s is not measured; add it to rates or concurrencies",
        "19:12: expected[0]: with 50 users is not measured; add it to rates or concurrencies",
    ]


def test_flags_that_the_simulator_does_not_accept_are_reported_for_all_configurations(tmp_path: Path) -> None:
    head = """\
name: small
source: a test
description: a small experiment
configurations:
  big: {preset: h100}
  fast: {preset: toy, flags: {quantization: int2, max-num-seq: 4, enforce-eager: maybe, gpu-memory-utilization: 2}}
"""
    with pytest.raises(UsageError) as caught:
        simulated_engine.check(experiment_file.load(write_experiment(tmp_path, head=head)))
    assert str(caught.value).splitlines() == [
        (
            "configurations.big: preset: 'h100' is unknown; known: rtx6000ada-qwen2.5-14b, h200-qwen2.5-14b, "
            "h200-llama-70b-fp8, t4-qwen2.5-0.5b, half-t4-qwen2.5-0.5b, a100-qwen3.5-35b-a3b, toy"
        ),
        "configurations.fast: quantization: 'int2' is not simulated; known: awq, awq_marlin, gptq, gptq_marlin, fp8",
        "configurations.fast: enforce_eager: 'maybe' is not true or false",
        (
            "configurations.fast: gpu_memory_utilization: '2' is not a share; write a number above 0 and up to 1, "
            "such as 0.9"
        ),
        "configurations.fast: max_num_seq: unknown setting; did you mean 'max_num_seqs'?",
    ]
