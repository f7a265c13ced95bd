"""Docker and nvidia-smi, as scripts on PATH with recorded output."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from compose.doctor import program_checks
from compose.doctor.finding import State
from compose.doctor.program_checks import docker, gpu_clocks, gpu_driver, gpu_settings, read_gpus
from tests.compose.doctor.golden_findings import assert_golden
from tests.support.promtool import ROOT

Install = Callable[[str, str], None]

H200 = "0, NVIDIA H200, 580.159.04, 0x0000000000000000, Enabled, 700.00, 700.00"
"""Recorded on a machine with one H200: the query of the checks, and below a query for a field that does not exist."""
UNKNOWN_FIELD = 'Field "clocks_throttle_reasons.active" is not a valid field to query.'
H100 = (ROOT / "tests/contract/nvidia-smi/h100-doctor.csv").read_text(encoding="utf-8").strip()
"""Recorded on a machine with one idle H100."""
QUERY = (
    "nvidia-smi --query-gpu=index,name,driver_version,clocks_throttle_reasons.active,persistence_mode,power.limit,"
    "power.default_limit --format=csv,noheader,nounits"
)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs scripts on a PATH without other programs."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(name: str, script: str) -> None:
        file = tmp_path / name
        file.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        file.chmod(0o755)

    return write


def smi(*lines: str) -> str:
    """A script that answers only the query of the checks."""
    output = "\n".join(lines)
    return f"""
[ "nvidia-smi $*" = "{QUERY}" ] || exit 3
echo '{output}'
"""


def compose_and_engine(compose: str, engine: str) -> str:
    return f'case "$1 $2" in "compose version") {compose};; "version --format") {engine};; *) exit 9;; esac'


def test_docker(install: Install) -> None:
    daemon = "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1"
    cases = {
        "ok": ("echo 2.40.3-3", "echo 28.5.1"),
        "the oldest": ("echo v2.24.4", "echo 24.0"),
        "old Compose": ("echo 2.23.3", "echo 24.0"),
        "no daemon": ("echo 2.40.3", daemon),
        "no Compose": ("echo \"docker: 'compose' is not a docker command.\" >&2; exit 1", "echo 20.10"),
        "fails without a message": ("exit 4", "echo 1"),
        "a version that is not understood": ("echo dev", "echo 28.5.1"),
    }
    found = {"not installed": docker()}
    for name, (compose, engine) in cases.items():
        install("docker", compose_and_engine(compose, engine))
        found[name] = docker()
    assert_golden("docker", found)


def test_the_driver(install: Install) -> None:
    found = {"not installed": gpu_driver(read_gpus())}
    for driver in ("580.159.04", "570.86.10", "470.256.02"):
        install("nvidia-smi", smi(H200.replace("580.159.04", driver)))
        found[driver] = gpu_driver(read_gpus())
    assert_golden("gpu driver", found)


def test_the_clocks(install: Install) -> None:
    cases = {
        "recorded": ["0x0000000000000000"],
        "idle": ["0x0000000000000001"],
        "power cap": ["0x0000000000000004", "0x0"],
        "heat": ["0x0000000000000004", "0x0000000000000048"],
        "two GPUs": ["0x20", "0x80"],
        "clocks by setting": ["0x0", "0x2"],
        "not supported": ["[N/A]", "0x0"],
    }
    found = {"not installed": gpu_clocks(read_gpus())}
    for name, masks in cases.items():
        rows = (f"{n}, NVIDIA H200, 580.159.04, {mask}, Enabled, 700, 700" for n, mask in enumerate(masks))
        install("nvidia-smi", smi(*rows))
        found[name] = gpu_clocks(read_gpus())
    assert_golden("gpu clocks", found)


def test_the_settings(install: Install) -> None:
    cases = {
        "recorded": ["Enabled, 700.00, 700.00"],
        "both": ["Disabled, 700.00, 700.00", "Enabled, 500.00, 700.00"],
        "not reported": ["[N/A], [N/A], [N/A]"],
    }
    found = {"not installed": gpu_settings(read_gpus())}
    for name, settings in cases.items():
        install("nvidia-smi", smi(*(f"{n}, NVIDIA H200, 580.159.04, 0x0, {each}" for n, each in enumerate(settings))))
        found[name] = gpu_settings(read_gpus())
    assert_golden("gpu settings", found)


@pytest.mark.parametrize(
    "script,found",
    [
        pytest.param(f"echo '{UNKNOWN_FIELD}'; exit 2", f"nvidia-smi: {UNKNOWN_FIELD}", id="recorded refusal"),
        pytest.param("echo No devices were found", "nvidia-smi: unexpected output 'No devices were found'", id="none"),
        pytest.param("exit 0", "nvidia-smi: unexpected output ''", id="nothing"),
    ],
)
def test_an_answer_that_is_not_understood_is_not_checked(install: Install, script: str, found: str) -> None:
    install("nvidia-smi", script)
    for check in (gpu_driver, gpu_clocks):
        assert check(read_gpus()).state is State.NOT_CHECKED
        assert check(read_gpus()).found == found


def test_a_recorded_h100_is_as_it_should_be(install: Install) -> None:
    install("nvidia-smi", smi(H100))
    gpus = read_gpus()
    assert [check(gpus).state for check in (gpu_driver, gpu_clocks, gpu_settings)] == [State.OK] * 3
    assert gpu_driver(gpus).found == "1 x NVIDIA H100 80GB HBM3, driver 580.159.04"


def test_a_program_that_hangs_is_not_waited_for(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_checks, "_TIMEOUT", 0.01)
    install("nvidia-smi", "while :; do :; done")
    assert gpu_driver(read_gpus()).found == "nvidia-smi: no output within 0.01 s"


def test_a_program_that_is_no_program_is_not_checked(install: Install, tmp_path: Path) -> None:
    install("nvidia-smi", "")
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF")
    assert gpu_driver(read_gpus()).found == "nvidia-smi cannot be started: Exec format error"
