"""Mistakes in the SLO file are reported together, each with position, reason and fix."""

from pathlib import Path

import pytest

from exporters.text.errors import UsageError
from exporters.text.yaml_reader import FileError
from exporters.vocabulary.slo_file import load, loads
from tests.support.command_line import CommandLine
from tests.support.slo_files import MINIMAL, MISTAKES


def refusal(text: str) -> str:
    with pytest.raises(FileError) as caught:
        loads(text, "slos.yaml")
    return str(caught.value)


def test_the_file_without_mistakes_is_valid() -> None:
    assert [slo.name for slo in loads(MINIMAL).slos] == ["ttft"]


@pytest.mark.parametrize("right,wrong,message", MISTAKES)
def test_a_mistake_is_reported_with_position_reason_and_fix(right: str, wrong: str, message: str) -> None:
    assert right in MINIMAL
    assert refusal(MINIMAL.replace(right, wrong, 1)) == message


def test_all_mistakes_are_reported_in_one_run() -> None:
    text = """\
version: 2
periods: 30d
classes:
  - {name: short, max_tokens: 512}
slos:
  - {name: ttft, classes: [short, long], signal: ttft, objective: 100%}
  - {name: ttft, classes: [short], signal: tpot, threshold: soon, objective: 95%}
"""
    lines = refusal(text).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "slos.yaml:1:1",
        "slos.yaml:1:10",
        "slos.yaml:2:1",
        "slos.yaml:4:31",
        "slos.yaml:6:5",
        "slos.yaml:6:35",
        "slos.yaml:6:67",
        "slos.yaml:7:12",
        "slos.yaml:7:61",
    ]
    assert lines[0] == "slos.yaml:1:1: the key period is missing"
    assert lines[5] == "slos.yaml:6:35: slos[0].classes[1]: 'long' is not a class of this file; known: short, other"


def test_a_period_that_is_too_short_is_reported_with_other_mistakes() -> None:
    lines = refusal(MINIMAL.replace("version: 1", "version: 2").replace("period: 30d", "period: 1d")).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["version", "period"]


def test_a_class_without_a_name_cannot_be_referenced() -> None:
    assert refusal(MINIMAL.replace("name: short, ", "")).splitlines() == [
        "slos.yaml:5:5: classes[0]: name is missing",
        "slos.yaml:8:28: slos[0].classes[0]: 'short' is not a class of this file; known: long, other",
    ]


@pytest.mark.parametrize(
    "text,message",
    [
        pytest.param("", "slos.yaml:1:1: expected a mapping with ", id="empty"),
        pytest.param("- a\n", "slos.yaml:1:1: expected a mapping with ", id="a list"),
        pytest.param("a: [1\n", "slos.yaml:2:1: invalid YAML: ", id="invalid YAML"),
        pytest.param("a: \x00\n", "slos.yaml:1:1: invalid YAML: ", id="a zero byte"),
        pytest.param("[" * 1000, "slos.yaml:1:1: invalid YAML: lists or mappings are nested too deeply", id="too deep"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_rejected(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize(
    "command", [["alerts", "explain", "--slos"], ["sidecar", "--upstream", "http://127.0.0.1:1", "--slos"]]
)
def test_a_command_with_an_invalid_file_exits_with_2(tmp_path: Path, command: list[str], cli: CommandLine) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(MINIMAL.replace("95%", "100%"))
    assert cli.refusal(*command, path).startswith(f"{path}:8:76: slos[0].objective: 100% leaves no error budget")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml: cannot be read: no such file or directory$"):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    "value, message",
    [
        ("", "expected text, found ''"),
        ("!foo x", "'x' is not a valid duration; write a number with a unit, such as 250ms, 5s, 1m or 12h, or none"),
    ],
)
def test_a_timeout_without_a_value_or_with_a_tag_of_its_own_is_a_mistake(value: str, message: str) -> None:
    assert refusal(f"{MINIMAL.rstrip()}\nfirst_token_timeout: {value}\n").endswith(f" first_token_timeout: {message}")
