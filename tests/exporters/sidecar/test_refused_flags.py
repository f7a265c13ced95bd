"""What `vllm-slo sidecar` refuses before it starts: exit 2, the whole message, never a traceback."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.cli import main
from tests.support.ports import free_port
from tests.support.sidecar_process import ROOT, SLOS, command, environment
from tests.support.waiting import HANG

ENGINE = "http://127.0.0.1:1"


@pytest.fixture
def slos(tmp_path: Path) -> str:
    path = tmp_path / "slos.yaml"
    path.write_text(SLOS)
    return str(path)


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    "words, message",
    [
        pytest.param(
            ["--upstream", "localhost:8000"],
            "--upstream: 'localhost:8000' is no address; write http://host:port or https://host:port",
            id="an upstream without http",
        ),
        pytest.param(
            ["--upstream", "http://"],
            "--upstream: 'http://' is no address; write http://host:port or https://host:port",
            id="an upstream without a host",
        ),
        pytest.param(
            ["--upstream", "http://127.0.0.1:80000"],
            "--upstream: 'http://127.0.0.1:80000' is no address: Port out of range 0-65535; write http://host:port",
            id="an upstream whose port does not exist",
        ),
        pytest.param(
            ["--upstream", "http://127.0.0.1:8000/?x"],
            "--upstream: 'http://127.0.0.1:8000/?x' is no address; write http://host:port or https://host:port",
            id="an upstream with a query",
        ),
        pytest.param(["--workers", "0"], "--workers: 0 relays cannot serve; use 1 or more", id="no workers"),
        pytest.param(
            ["--drain", "soon"],
            "--drain: 'soon' is no duration; write a number with a unit, such as 250ms, 30s or 10m",
            id="a drain that is no duration",
        ),
        pytest.param(
            ["--drain", "never"],
            "--drain: 'never' is no duration; write a number with a unit, such as 250ms, 30s or 10m",
            id="a drain without end",
        ),
        pytest.param(
            ["--cut-idle", "0"],
            "--cut-idle: '0' is no duration; write a number with a unit, such as 250ms, 30s or 10m",
            id="a cut that would end everything",
        ),
        pytest.param(
            ["--cut-first-token", "60"],
            "--cut-first-token: '60' is no duration; write a number with a unit, such as 250ms, 30s or 10m",
            id="a number without a unit",
        ),
        pytest.param(
            ["--max-body", "256MB"],
            "--max-body: '256MB' is no size; write bytes or a number with a unit, such as 64KiB or 256MiB",
            id="a size in a unit of another kind",
        ),
        pytest.param(
            ["--max-head", "never"],
            "--max-head: 'never' is no size; write bytes or a number with a unit, such as 64KiB or 256MiB",
            id="a head without limit",
        ),
        pytest.param(
            ["--log-level", "loud"],
            "--log-level: 'loud' is no level; use debug, info, warning or error",
            id="an unknown log level",
        ),
        pytest.param(
            ["--slos", "nowhere/slos.yaml"],
            "nowhere/slos.yaml: cannot be read: no such file or directory",
            id="no SLO file",
        ),
    ],
)
def test_a_wrong_flag_is_refused_with_what_would_work(
    words: list[str], message: str, slos: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    flags = ["--upstream", ENGINE, "--slos", slos, "--request-log", str(log), *words]
    assert main(["sidecar", *flags]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"
    assert not log.exists()


def test_an_unknown_log_level_of_the_environment_is_refused(
    slos: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_SLO_LOG_LEVEL", "loud")
    assert main(["sidecar", "--upstream", ENGINE, "--slos", slos]) == 2
    message = "--log-level: 'loud' is no level; use debug, info, warning or error"
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"


def test_every_mistake_of_the_slo_file_is_said_in_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(SLOS.replace("objective: 99%", "objectiv: 99%").replace("period: 2h", "period: two"))
    assert main(["sidecar", "--upstream", ENGINE, "--slos", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: {path}:3:9: period: 'two' is no duration; "
        "write a number with a unit, such as 250ms, 5s, 1m, 12h or 30d\n"
        f"{path}:8:5: slos[0]: objective is missing\n"
        f"{path}:8:64: slos[0].objectiv: unknown key; did you mean 'objective'?\n"
    )


def test_a_log_that_cannot_be_written_is_refused(slos: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sidecar", "--upstream", ENGINE, "--slos", slos, "--request-log", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"vllm-slo: --request-log: {tmp_path} cannot be written: is a directory\n"


def test_an_upstream_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sidecar"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(
        "vllm-slo sidecar: error: the following arguments are required: --upstream\n"
    )


async def refused(*words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *command("--upstream", ENGINE, *words), cwd=ROOT, env=environment(), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(HANG):
        _, stderr = await process.communicate()
    return process.returncode, stderr.decode()


async def test_an_address_that_cannot_be_listened_on_is_refused(slos: str, busy: int) -> None:
    free = [f"127.0.0.1:{free_port()}" for _ in range(4)]  # each its own: they run side by side
    runs = await asyncio.gather(
        refused("--slos", slos, "--listen", f"127.0.0.1:{busy}", "--metrics", free[0]),
        refused("--slos", slos, "--listen", free[1], "--metrics", f"127.0.0.1:{busy}"),
        refused("--slos", slos, "--listen", "localhost", "--metrics", free[2]),
        refused("--slos", slos, "--listen", free[3], "--metrics", "127.0.0.1:99999"),
    )
    assert list(runs) == [
        (2, f"vllm-slo: --listen: cannot listen on 127.0.0.1:{busy}: address already in use\n"),
        (2, f"vllm-slo: --metrics: cannot listen on 127.0.0.1:{busy}: address already in use\n"),
        (2, "vllm-slo: --listen: 'localhost' is no address; write HOST:PORT, such as 127.0.0.1:8001\n"),
        (2, "vllm-slo: --metrics: '127.0.0.1:99999' is no address; write HOST:PORT, such as 127.0.0.1:8001\n"),
    ]
