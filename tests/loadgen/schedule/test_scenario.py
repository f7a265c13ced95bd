"""A scenario is read in full, and all of its mistakes are reported at once."""

from pathlib import Path

import pytest

from exporters.text.yaml_reader import FileError
from loadgen.schedule import scenario
from loadgen.schedule.phases import AtOnce, ClosedLoop, Diurnal, Law, Ramp, Steady, Steps
from loadgen.schedule.scenario import Conversation, Shape, Starters, TimeRange, TokenRange
from tests.loadgen.run_flags import refusal

SMALL = """
name: small
classes:
  chat: {share: 2, prompt_tokens: {min: 10, max: 20}, output_tokens: {min: 5, max: 5}}
phases: [{name: steady, duration: 1m30s, rate: 2.5}]
"""


def load(text: str, folder: Path) -> scenario.Scenario:
    (folder / "scenario.yaml").write_text(text)
    return scenario.load(folder / "scenario.yaml")


def test_optional_keys_have_defaults(tmp_path: Path) -> None:
    assert load(SMALL, tmp_path) == scenario.Scenario(
        name="small",
        description="",
        seed=0,
        timeout=180.0,
        stream_share=0.9,
        chat_share=0.9,
        corpus=(),
        shapes={"chat": Shape(2.0, TokenRange(10, 20), TokenRange(5, 5))},
        phases=(Steady("steady", 90.0, 2.5),),
    )


def test_a_negative_burstiness_is_rejected(tmp_path: Path) -> None:
    gamma = SMALL.replace("rate: 2.5", "rate: 2.5, arrivals: gamma, burstiness: -0.5")
    with pytest.raises(FileError, match=r"phases\[0\]\.burstiness: "):
        load(gamma, tmp_path)


def test_conversations_and_all_kinds_of_phases_are_read(tmp_path: Path) -> None:
    text = SMALL.replace(
        "{min: 5, max: 5}}",
        "{min: 5, max: 5}, conversation: {turns: {min: 2, max: 4}, "
        "think_time: {min: 1s, max: 5s}, starters: {count: 3, tokens: {min: 100, max: 200}}}}",
    ).replace(
        "[{name: steady, duration: 1m30s, rate: 2.5}]",
        """
  - {name: ramp, duration: 1m, rate: 1, end_rate: 4, arrivals: constant}
  - {name: stairs, duration: 1m, steps: [1, 2], arrivals: gamma, burstiness: 0.5}
  - {name: day, duration: 1h, rate: 1, peak_rate: 3, cycle: 30m}
  - {name: burst, duration: 1m, requests: 100}
  - {name: loop, duration: 1m, users: 8, think_time: 2s}""",
    )
    read = load(text, tmp_path)
    assert read.phases == (
        Ramp("ramp", 60, rate=1, end_rate=4, arrivals=Law.CONSTANT),
        Steps("stairs", 60, steps=(1, 2), arrivals=Law.GAMMA, burstiness=0.5),
        Diurnal("day", 3600, rate=1, peak_rate=3, cycle=1800),
        AtOnce("burst", 60, requests=100),
        ClosedLoop("loop", 60, users=8, think_time=2),
    )
    assert read.shapes["chat"].conversation == Conversation(
        TokenRange(2, 4), TimeRange(1, 5), Starters(3, TokenRange(100, 200), 1.0)
    )


def test_every_mistake_is_reported_in_one_run() -> None:
    wrong = Path(__file__).parents[1] / "invalid" / "scenario.yaml"
    with pytest.raises(FileError) as refusal:
        scenario.load(wrong)
    assert f"{refusal.value}\n".replace(f"{wrong.parent}/", "") == wrong.with_suffix(".txt").read_text()


@pytest.mark.parametrize(
    "before, after, message",
    [
        pytest.param(
            "share: 2",
            "share: 0",
            "scenario.yaml:4:3: classes: no class has a share above 0; set one, such as share: 1",
            id="no share",
        ),
        pytest.param(
            "  chat: {",
            "  warm-up: {",
            "scenario.yaml:4:12: classes.warm-up: 'warm-up' is reserved for requests that prepare an engine; choose "
            "another name",
            id="the class of the warm-up",
        ),
        pytest.param(
            "[{name: steady, duration: 1m30s, rate: 2.5}]",
            "[]",
            "scenario.yaml:5:9: phases: has no phase; add one, such as {name: steady, duration: 2m, rate: 4}",
            id="no phase",
        ),
    ],
)
def test_a_scenario_that_offers_nothing_is_refused(before: str, after: str, message: str, tmp_path: Path) -> None:
    assert refusal(lambda: load(SMALL.replace(before, after), tmp_path)) == f"{tmp_path}/{message}"


def test_conversations_cannot_repeat_prompts(tmp_path: Path) -> None:
    talk = "prompts: 2, conversation: {turns: {min: 1, max: 2}, think_time: {min: 1s, max: 1s}}"
    assert refusal(lambda: load(SMALL.replace("share: 2", f"share: 2, {talk}"), tmp_path)) == (
        f"{tmp_path}/scenario.yaml:4:29: classes.chat.prompts: cannot be combined with conversation; keep one"
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in scenario.SHIPPED.glob("*.yaml")))
def test_a_built_in_scenario_is_found_by_its_name(name: str) -> None:
    assert scenario.load(scenario.find(name)).name == name


def test_the_demo_has_a_baseline_and_an_overload() -> None:
    baseline, overload = scenario.load(scenario.find("demo")).phases
    assert isinstance(baseline, Steady)
    assert isinstance(overload, Steady)
    assert (baseline.name, overload.name) == ("baseline", "overload")
    assert overload.rate > 4 * baseline.rate > 0


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert (
        refusal(lambda: scenario.find("mixd")) == "mixd: neither a file nor a built-in scenario; did you mean 'mixed'?"
    )
