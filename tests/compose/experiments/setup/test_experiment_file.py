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
from tests.compose.golden_texts import assert_golden

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


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    """Those of each key, and of keys that do not go together."""
    no_rates = """\
requests: 3
predictions:
  - {configuration: prefx, class: shrt, metric: goodput, baseline: bas, direction: higher}
  - {configuration: prefix, metric: goodput}
expected: [{configuration: basis, class: all, metric: goodput, value: 1}]
"""
    no_users = """\
concurrencies: [1, 10]
predictions: [{configuration: prefix, metric: goodput, rate: 2, baseline: base, direction: higher}]
expected: [{configuration: base, metric: goodput, value: 1, concurrency: 50}]
"""
    ramp = LOAD.replace("rate: 10}]", "rate: 10, end_rate: 20}]")
    files = {
        "requests without rates, and unknown names": write_experiment(tmp_path / "a", more=no_rates),
        "a load without users, and figures that are not measured": write_experiment(tmp_path / "b", more=no_users),
        "a load whose rate changes": write_experiment(tmp_path / "c", load=ramp, more="rates: [1]\n"),
    }
    found = {case: "\n".join(mistakes(path)) for case, path in ({"all keys": INVALID} | files).items()}
    assert_golden(__file__, "mistakes", found)


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
    assert_golden(__file__, "flags", {"mistakes": str(caught.value)})
