"""Docker and nvidia-smi, as scripts on PATH with recorded output."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from compose.doctor import program_checks
from compose.doctor.finding import Finding, State
from compose.doctor.program_checks import docker, gpu_clocks, gpu_driver, gpu_settings, read_gpus
from tests.support.promtool import ROOT

Install = Callable[[str, str], None]

DOCKER_COST = "the lab in containers does not start; `vllm-slo up` does"
H200 = "0, NVIDIA H200, 580.159.04, 0x0000000000000000, Enabled, 700.00, 700.00"
"""Recorded on a machine with one H200: the query of the checks, and below a query for a field that does not exist."""
UNKNOWN_FIELD = 'Field "clocks_throttle_reasons.active" is not a valid field to query.'
H100 = (ROOT / "tests/contract/nvidia-smi/h100-doctor.csv").read_text(encoding="utf-8").strip()
"""Recorded on a machine with one idle H100."""
GPU_CLOCKS = "nvidia-smi, clocks_throttle_reasons.active"
GPU_SETTINGS = "nvidia-smi, persistence_mode and power.limit"
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


def test_what_is_not_installed_is_not_checked(install: Install) -> None:
    assert docker() == Finding(
        State.NOT_CHECKED,
        "docker version, docker compose version",
        "docker is not on PATH; only `docker compose up` needs it",
        fix="install Docker Engine, or use vllm-slo up",
    )
    for check, looked_at in ((gpu_driver, "nvidia-smi"), (gpu_clocks, GPU_CLOCKS), (gpu_settings, GPU_SETTINGS)):
        assert check(read_gpus()) == Finding(
            State.NOT_CHECKED,
            looked_at,
            "nvidia-smi is not on PATH",
            fix="vllm-slo doctor, on the machine of the engine",
        )


@pytest.mark.parametrize(
    "compose,engine,state,found,fix",
    [
        pytest.param("echo 2.40.3-3", "echo 28.5.1", State.OK, "Docker 28.5.1, Compose 2.40.3-3", "", id="ok"),
        pytest.param("echo v2.24.4", "echo 24.0", State.OK, "Docker 24.0, Compose v2.24.4", "", id="the oldest"),
        pytest.param(
            "echo 2.23.3",
            "echo 24.0",
            State.WARNING,
            "Compose 2.23.3 is older than 2.24",
            "install Compose 2.24 or newer",
            id="old Compose",
        ),
        pytest.param(
            "echo 2.40.3",
            "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1",
            State.WARNING,
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "systemctl start docker",
            id="no daemon",
        ),
        pytest.param(
            "echo \"docker: 'compose' is not a docker command.\" >&2; exit 1",
            "echo 20.10",
            State.WARNING,
            "docker: docker: 'compose' is not a docker command.",
            "install the plugin docker-compose-plugin",
            id="no Compose",
        ),
        pytest.param("exit 4", "echo 1", State.WARNING, "docker: exit status 4", None, id="fails without a message"),
    ],
)
def test_docker(install: Install, compose: str, engine: str, state: State, found: str, fix: str | None) -> None:
    install("docker", compose_and_engine(compose, engine))
    finding = docker()
    assert (finding.state, finding.found) == (state, found)
    assert finding.cost == ("" if state is State.OK else DOCKER_COST)
    if fix is not None:
        assert finding.fix == fix


def test_a_version_that_is_not_understood_is_not_checked(install: Install) -> None:
    install("docker", compose_and_engine("echo dev", "echo 28.5.1"))
    assert docker().state is State.NOT_CHECKED
    assert docker().found == "'dev' is not a version of Compose"


@pytest.mark.parametrize(
    "driver,state,cost",
    [
        pytest.param("580.159.04", State.OK, "", id="recorded"),
        pytest.param(
            "570.86.10",
            State.WARNING,
            "builds of vLLM for CUDA 13 do not start: they need driver 580 or newer",
            id="12",
        ),
        pytest.param(
            "470.256.02",
            State.FAILED,
            "vLLM does not start: CUDA 12 needs driver 525 or newer",
            id="older than CUDA 12",
        ),
    ],
)
def test_the_driver(install: Install, driver: str, state: State, cost: str) -> None:
    install("nvidia-smi", smi(H200.replace("580.159.04", driver)))
    fix = "" if state is State.OK else "apt-get install nvidia-driver-580-server, or the package of your system"
    assert gpu_driver(read_gpus()) == Finding(state, "nvidia-smi", f"1 x NVIDIA H200, driver {driver}", cost, fix)


@pytest.mark.parametrize(
    "masks,state,found",
    [
        pytest.param(["0x0000000000000000"], State.OK, "no slowdown at this moment on 1 GPUs", id="recorded"),
        pytest.param(["0x0000000000000001"], State.OK, "no slowdown at this moment on 1 GPUs", id="idle"),
        pytest.param(["0x0000000000000004", "0x0"], State.WARNING, "GPU 0: at the power limit", id="power cap"),
        pytest.param(
            ["0x0000000000000004", "0x0000000000000048"],
            State.FAILED,
            "GPU 1: hardware slowdown, hardware thermal slowdown",
            id="heat",
        ),
        pytest.param(
            ["0x20", "0x80"],
            State.FAILED,
            "GPU 0: software thermal slowdown; GPU 1: hardware power brake",
            id="two GPUs",
        ),
        pytest.param(["0x0", "0x2"], State.WARNING, "GPU 1: a setting limits the clocks", id="clocks by setting"),
        pytest.param(["[N/A]", "0x0"], State.NOT_CHECKED, "GPU 0 does not report it", id="not supported"),
    ],
)
def test_the_clocks(install: Install, masks: list[str], state: State, found: str) -> None:
    install(
        "nvidia-smi", smi(*(f"{n}, NVIDIA H200, 580.159.04, {mask}, Enabled, 700, 700" for n, mask in enumerate(masks)))
    )
    finding = gpu_clocks(read_gpus())
    assert (finding.state, finding.looked_at, finding.found) == (state, GPU_CLOCKS, found)
    assert bool(finding.cost) == (state in {State.WARNING, State.FAILED})


@pytest.mark.parametrize(
    "settings,state,found,fix",
    [
        pytest.param(
            ["Enabled, 700.00, 700.00"], State.OK, "persistence mode and full power on 1 GPUs", "", id="recorded"
        ),
        pytest.param(
            ["Disabled, 700.00, 700.00", "Enabled, 500.00, 700.00"],
            State.WARNING,
            "GPU 0: persistence mode is off; power limit of GPU 1: 500 W of 700 W",
            "nvidia-smi -pm 1; nvidia-smi -pl 700",
            id="both",
        ),
        pytest.param(
            ["[N/A], [N/A], [N/A]"], State.OK, "persistence mode and full power on 1 GPUs", "", id="not reported"
        ),
    ],
)
def test_the_settings(install: Install, settings: list[str], state: State, found: str, fix: str) -> None:
    install("nvidia-smi", smi(*(f"{n}, NVIDIA H200, 580.159.04, 0x0, {each}" for n, each in enumerate(settings))))
    finding = gpu_settings(read_gpus())
    assert (finding.state, finding.looked_at, finding.found, finding.fix) == (state, GPU_SETTINGS, found, fix)
    assert bool(finding.cost) is (state is State.WARNING)


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
