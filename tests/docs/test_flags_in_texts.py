"""Every command line of `vllm-slo` in pages, messages and manifests has flags that the command has."""

import re
import subprocess
from pathlib import Path

from tests.support.command_parsers import leaf_parsers

ROOT = Path(__file__).parents[2]
LEAVES = leaf_parsers()
HISTORY = {"CHANGELOG.md", "docs/renamed.md"}
THIS = "tests/docs/test_flags_in_texts.py"

_COMMAND = re.compile(r"vllm-slo ((?:[a-z-]+)(?: [a-z-]+(?=\s|$))?)((?: \S+)*)")
_END = re.compile(r"[`|&;#)]|\s>|' |\"(?:,|$)| to | with ")
"""Ends the words of a command in a line."""
_QUOTED = re.compile(r"'[^']*'")


def texts() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    suffixes = {".md", ".py", ".yaml", ".yml", ".json"}
    return [ROOT / name for name in names if Path(name).suffix in suffixes and name not in {*HISTORY, THIS}]


def mistakes(line: str) -> list[str]:
    """The words after a command that it does not take."""
    found = []
    for command, rest in _COMMAND.findall(line):
        name = command if command in LEAVES else command.partition(" ")[0]
        words = f"{command[len(name) :]} {_END.split(_QUOTED.sub('VALUE', rest))[0]}".split()
        if name not in LEAVES or not words:
            continue
        flags = {flag for action in LEAVES[name]._actions for flag in action.option_strings}
        found += [
            f"{name}: {word}"
            for word in words
            if (flag := re.split('[=":]', word)[0])[:2] == "--" and flag not in flags
        ]
        takes = any(not action.option_strings for action in LEAVES[name]._actions)
        if not takes and re.fullmatch(r"[\w/.'*-]+\.(?:jsonl|yaml)'?|FILE|LOG|mixed", words[0]):
            found.append(f"{name}: {words[0]}")
    return found


def test_a_mistake_is_found() -> None:
    assert mistakes("`vllm-slo requests requests.jsonl --since 1h`") == ["requests: requests.jsonl"]
    assert mistakes("run: vllm-slo alerts check --slo FILE | head --lines 1") == ["alerts check: --slo"]
    assert mistakes("    vllm-slo flip --sidecar URL --set a=b") == []


def test_every_command_line_has_flags_that_exist() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{number}": wrong
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "vllm-slo " in line and (wrong := mistakes(line))
    }
    assert found == {}
