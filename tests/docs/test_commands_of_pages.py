"""README and *Getting started*: their commands work as written, in order, in an empty environment.

`pytest -m long -s tests/docs/test_commands_of_pages.py` prints each command with its time.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.lab.ports import SERVICES, Ports, is_busy
from compose.programs.tools import Tools
from tests.docs.shell_blocks import shell_commands
from tests.docs.shell_session import ShellSession

ROOT = Path(__file__).parents[2]
README, GETTING_STARTED = "README.md", "docs/getting-started.md"

_CLONE = "git clone <repository> vllm-slo && cd vllm-slo"
_COPIED = "the repository is a placeholder; the commands run in a copy of this clone"
_SERVE = "vllm serve MODEL --enable-prompt-tokens-details --enable-per-request-metrics"
_LAB_SLOS = "cp compose/slos.yaml slos.yaml"
_STRICT_SLOS = "sed 's/threshold: 5s/threshold: 1ms/' compose/slos.yaml > slos.yaml"

NOT_RUN = {
    (README, ""): {
        "make demo": ".ci/run runs it in a fresh clone, and it checks itself",
        "make test": "this is one of the tests",
    },
    (GETTING_STARTED, "without an engine"): {
        _CLONE: _COPIED,
        _SERVE: "the path with vLLM",
        _STRICT_SLOS: "the path with vLLM",
    },
    (GETTING_STARTED, "with vLLM"): {
        _CLONE: _COPIED,
        _SERVE: "it needs a GPU and a model; the simulator listens on its port",
        _LAB_SLOS: "the path without an engine",
    },
}
"""By page and path through it: each command that the test leaves out, without its comment, and the reason."""

VARIABLES = {
    "vllm-slo simulate &": {"VLLM_SLO_PRESET": "h200-qwen2.5-14b"},  # a faster engine
    "vllm-slo load run --scenario mixed --target": {"VLLM_SLO_DURATION": "5s", "VLLM_SLO_ALLOW_INVALID": "true"},
}
"""By the beginning of a command: environment variables of its flags, which make it shorter.

A short run is INVALID by the first stall of the load generator, which other tests on this machine can cause.
"""

INTERRUPTED = {"vllm-slo load find-max": "stopped: interrupted in the probe at 4.3 requests/s"}
"""By the beginning of a command that takes hours: what it prints when ctrl-c ends it in its first minute."""

WHEEL = os.environ.get("RELEASE_WHEEL")
"""A wheel to install instead of the clone, whose modules are then left out; `make release-check` sets it."""

REPEATED = ("vllm-slo dashboards audit",)
"""The beginnings of commands that may fail for a moment, as their page says; they must succeed within a minute."""


@pytest.fixture
def documented_ports() -> Iterator[None]:
    """The ports of the pages, for one test of this machine at a time."""
    ports = Ports()
    with (Path(tempfile.gettempdir()) / "vllm-slo-documented-ports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if busy := [f"{name} ({getattr(ports, name)})" for name in SERVICES if is_busy(getattr(ports, name))]:
            pytest.skip(f"another program uses the port of {', '.join(busy)}")
        yield


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of this working tree that are in git, or would be; with `WHEEL`, no modules."""
    target = tmp_path / "vllm-slo"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not (WHEEL and name.endswith((".py", "pyproject.toml"))):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


@pytest.fixture
def environment(clone: Path, tools: Tools, tmp_path: Path) -> dict[str, str]:
    """What a reader has: the Python of the machine and the programs of Prometheus, and nothing of this environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    for name in ("prometheus", "promtool", "alertmanager"):
        (programs / name).symlink_to(getattr(tools, name))
    if tools.alertmanager_cwd is not None:  # its templates are below the working directory
        (clone / "usr").symlink_to(tools.alertmanager_cwd / "usr")
    paths = [path for path in os.environ["PATH"].split(os.pathsep) if not Path(path).is_relative_to(ROOT)]
    ours = ("VIRTUAL_ENV", "PYTHON", "PYTEST", "COV", "VLLM_SLO")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PATH": os.pathsep.join([str(programs), *paths])}


@pytest.mark.long
@pytest.mark.parametrize("page, path", NOT_RUN, ids=["README", "getting started", "getting started with vLLM"])
@pytest.mark.usefixtures("documented_ports")
def test_the_commands_of_a_page_work_as_written(
    page: str, path: str, clone: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    with ShellSession(clone, environment, tmp_path / "results") as session:
        for command in _commands(page):
            if command not in NOT_RUN[page, path]:
                _run(session, command)
        if page == GETTING_STARTED:
            session.run("wait", {})  # its last command ends all programs in the background


def test_each_command_that_is_left_out_or_changed_is_on_its_page() -> None:
    for (page, _), left_out in NOT_RUN.items():
        assert left_out.keys() <= set(_commands(page))
    for beginning in [*VARIABLES, *INTERRUPTED, *REPEATED]:
        assert any(command.startswith(beginning) for page in (README, GETTING_STARTED) for command in _commands(page))


def test_here_documents_continued_lines_and_shell_fences_are_commands_and_other_fences_are_not() -> None:
    indented = "Text\n\n    a \\\n      b  # c\n    cat > f <<'EOF'\n    x:\n      y\n    EOF\n\n"
    fenced = "```yaml\nk: v\n```\n```sh\nd\n```\n"
    assert shell_commands(indented + fenced) == ["a \\\n  b", "cat > f <<'EOF'\nx:\n  y\nEOF", "d"]


def test_the_table_of_ports_has_the_default_port_of_each_service() -> None:
    text = (ROOT / GETTING_STARTED).read_text(encoding="utf-8")
    for name in SERVICES:
        assert f"\n| {getattr(Ports(), name)} | " in text


def _commands(page: str) -> list[str]:
    return shell_commands((ROOT / page).read_text(encoding="utf-8"))


def _run(session: ShellSession, command: str) -> None:
    """Run a command; fails with its output if its status is not 0."""
    variables = next((added for beginning, added in VARIABLES.items() if command.startswith(beginning)), {})
    command = command.replace("'.[lab]'", f"'{WHEEL}[lab]'") if WHEEL else command
    expected = next((text for beginning, text in INTERRUPTED.items() if command.startswith(beginning)), None)
    if expected is None:
        status, output = session.run(command, variables)
        for _ in range(5):
            if status and command.startswith(REPEATED):
                time.sleep(10)  # until Prometheus has scraped again
                status, output = session.run(command, variables)
        assert status == 0, f"status {status}:\n{command}\n\n{output}"
    else:
        _, output = session.run(f"timeout --signal=INT 20 {command}", {"VLLM_SLO_GRACE": "1s"})
        assert expected in output, f"does not print {expected!r} when it is interrupted:\n{command}\n\n{output}"
