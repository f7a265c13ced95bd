"""One grammar for all commands: the same flag for the same thing, no abbreviations, the same exit statuses."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compose.cli import COMMANDS, GROUPS, main, overview
from compose.renamed_flags import RENAMED, old_variables
from exporters.text.environment import variable
from tests.compose.golden_texts import assert_golden
from tests.support.command_parsers import leaf_parsers

LEAVES = leaf_parsers()
FLAGS = {name: {flag for action in leaf._actions for flag in action.option_strings} for name, leaf in LEAVES.items()}

SAME = {
    "--sidecar": "URL",
    "--prometheus": "URL",
    "--slos": "FILE",
    "--request-log": "FILE",
    "--admin-token-file": "FILE",
    "--engine-token-file": "FILE",
    "--roofline": "FILE",
    "--listen": "HOST:PORT",
    "--since": "TIME",
    "--until": "TIME",
    "--out": ("DIR", "FILE"),
}
"""What each of these flags takes in every command that has it."""

ACTIONS = [
    pytest.param(name, action, id=f"{name} {action.option_strings[0]}")
    for name, leaf in LEAVES.items()
    for action in leaf._actions
    if SAME.keys() & {*action.option_strings}
]

RENDERED = {"alerts render", "dashboards render"}
"""Commands whose --format is that of the files that they write."""


@pytest.mark.parametrize("name, action", ACTIONS)
def test_a_flag_takes_the_same_in_all_commands(name: str, action: argparse.Action) -> None:
    assert action.metavar in SAME[action.option_strings[0]]


@pytest.mark.parametrize("name", [name for name in LEAVES if "--format" in FLAGS[name] and name not in RENDERED])
def test_printed_results_are_text_or_json_at_least(name: str) -> None:
    (action,) = (each for each in LEAVES[name]._actions if "--format" in each.option_strings)
    assert [*(action.choices or ())][:2] == ["text", "json"]
    assert action.default == "text"


def test_an_input_that_another_command_has_as_a_flag_is_no_positional_argument() -> None:
    positional = {
        name: [action.dest for action in leaf._actions if not action.option_strings] for name, leaf in LEAVES.items()
    }
    assert {name: names for name, names in positional.items() if names} == {
        "alerts runbook": ["name"],
        "load report": ["folder"],
        "load compare": ["before", "after"],
        "experiment run": ["experiment"],
        "experiment report": ["folder"],
        "experiment score": ["folder"],
        "experiment grade": ["folders"],
        "experiment windows": ["folder"],
    }


@pytest.mark.parametrize("name", LEAVES)
def test_an_abbreviated_flag_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "--hel"]) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: --hel: there is no such flag; did you mean '--help'?\nsee: vllm-slo {name} --help\n"
    )


RENAMES = [
    pytest.param(name, old.split(", "), now, id=f"{name} {old}")
    for name, flags in RENAMED.items()
    for old, now in flags
    if old != "--format table"
]


@pytest.mark.parametrize("name, old, now", RENAMES)
def test_an_old_flag_is_refused_with_the_new_one(
    name: str, old: list[str], now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    required = [
        action.option_strings[0] for action in LEAVES[name]._actions if action.required and action.option_strings
    ]
    for flag in old:
        words = [f"{each}=1" for each in required] if flag.isupper() else []
        assert main([*name.split(), *words, flag.lower() if flag.isupper() else flag]) == 2
        assert f"write {now}\n" in capsys.readouterr().err


@pytest.mark.parametrize("name, old, now", RENAMES)
def test_a_renamed_flag_exists_by_its_new_name_only(name: str, old: list[str], now: str) -> None:
    assert set(re.findall(r"--[\w-]+", now)) <= FLAGS[name]
    assert not set(old) & FLAGS[name]


@pytest.mark.parametrize("name, old, now", RENAMES)
def test_the_variable_of_an_old_flag_is_refused_unless_another_command_has_the_flag(
    name: str, old: list[str], now: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used = set().union(*FLAGS.values())
    for flag in old:
        if flag.startswith("--") and flag not in used:
            with monkeypatch.context() as patch:
                patch.setenv(variable(flag), "1")
                assert main(name.split()) == 2
            assert capsys.readouterr().err.startswith(f"vllm-slo: {variable(flag)}: its flag has another name")
        else:
            assert not any(variable(flag) == each for each, _ in old_variables(f"vllm-slo {name}"))


def test_the_help_lists_every_command_once_in_its_group() -> None:
    lines = overview().splitlines()
    assert [line.removesuffix(":") for line in lines if re.fullmatch(r"[a-z ]+:", line)] == [*GROUPS]
    assert re.findall(r"^  (\w+) ", overview(), re.MULTILINE) == [*COMMANDS]
    assert max(map(len, lines)) < 90


def test_the_help_and_the_version_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--help"]), main(["--version"])) == (0, 0)
    assert re.fullmatch(re.escape(overview()) + r"\nvllm-slo \d+\.\d+\.\d+\n", capsys.readouterr().out)


WRONG = (
    "",
    "diagnos",
    "roofline --gpu H200 x",
    "alerts check --strict x",
    "load run --targt x",
    "VLLM_SLO_FORMAT=tables load compare a b",
    "VLLM_SLO_FORMAT=cvs load report a",
    "VLLM_SLO_STRICT=maybe alerts check",
    "VLLM_SLO_GPUS=two alerts render",
)


def test_wrong_usage_has_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On the command line, or in a variable of the environment."""
    found = {}
    for line in WRONG:
        with monkeypatch.context() as patch:
            words = line.split()
            if line.startswith("VLLM_SLO_"):
                patch.setenv(*words.pop(0).split("="))
            assert main(words) == 2
        found[line or "no command"] = capsys.readouterr().err.strip()
    assert_golden(__file__, "wrong usage", found)


def test_flags_replace_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_SLO_CLASS", "a,b")
    monkeypatch.setenv("VLLM_SLO_FORMAT", "csv")
    parse = LEAVES["requests"].parse_args
    of_environment, of_flags = parse(["--request-log", "x"]), parse(["--request-log", "x", "--class", "c", "--class=d"])
    assert (vars(of_environment)["class"], of_environment.format) == (["a", "b"], "csv")
    assert vars(of_flags)["class"] == ["c", "d"]


@pytest.mark.slow
def test_a_reader_that_exits_ends_a_command_as_its_signal_does() -> None:
    code = "import sys; from compose.cli import main; sys.exit(main(['alerts', 'render']))"
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2], check=False
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (141, b"")
