"""Flags and files that `vllm-slo sidecar` rejects before it starts: exit status 2 and the whole message."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.cli import main
from tests.support.ports import busy_port, free_port
from tests.support.sidecar_process import IMPATIENT, RUN, SLOS, START, run_command

ENGINE = "http://127.0.0.1:1"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def slos(tmp_path: Path) -> str:
    path = tmp_path / "slos.yaml"
    path.write_text(SLOS)
    return str(path)


@pytest.fixture
def busy() -> Iterator[int]:
    with busy_port() as port:
        yield port


URL = "is not a valid URL"
ORIGIN = "write http://host:port or https://host:port"
HOST = "a label of its host is empty, longer than 63 bytes or has an invalid character"
METRICS = "write http://host:port/metrics"
COLLECTORS = "write http://127.0.0.1:4318 or grpc://127.0.0.1:4317"
RECEIVERS = "write grpc://127.0.0.1:4317 or http://127.0.0.1:4318"
ADDRESS = "write HOST:PORT, such as 127.0.0.1:8001"
DURATION = "is not a valid duration; write a number with a unit, such as 250ms, 30s or 10m"
SIZE = "is not a valid size; write bytes or a number with a unit, such as 64KiB or 256MiB"
LEAST = "each relay needs 16MiB, because it parses bodies of up to 6MiB"
LEVEL = "'loud' is unknown; use debug, info, warning or error"


@pytest.mark.parametrize(
    "flag, value, message",
    [
        ("--upstream", "localhost:8000", f"'localhost:8000' {URL}; {ORIGIN}"),
        ("--upstream", "http://", f"'http://' {URL}; {ORIGIN}"),
        ("--upstream", "http://h:80000", f"'http://h:80000' {URL}: Port out of range 0-65535; {ORIGIN}"),
        ("--upstream", "http://127.0.0.1:8000/?x", f"'http://127.0.0.1:8000/?x' {URL}; {ORIGIN}"),
        ("--upstream", "http://a..b:8000", f"'http://a..b:8000' {URL}: {HOST}; {ORIGIN}"),
        ("--engine-metrics", "http://a..b/metrics", f"'http://a..b/metrics' is not a URL: {HOST}; {METRICS}"),
        ("--otlp", "http://a..b", f"'http://a..b' {URL}: {HOST}; {COLLECTORS}"),
        ("--otlp", "grpc://a..b", f"'grpc://a..b' {URL}: {HOST}; {COLLECTORS}"),
        ("--engine-spans", "grpc://a..b", f"'grpc://a..b' {URL}: {HOST}; {RECEIVERS}"),
        ("--workers", "0", "0 is not a valid number of relays; use 1 or more"),
        ("--max-models", "0", "0 is not a valid number of models; use 1 or more"),
        ("--drain", "soon", f"'soon' {DURATION}"),
        ("--drain", "never", f"'never' {DURATION}"),
        ("--drain-delay", "never", f"'never' {DURATION}"),
        ("--linger", "8", f"'8' {DURATION}"),
        ("--cut-idle", "0", f"'0' {DURATION}"),
        ("--cut-first-token", "60", f"'60' {DURATION}"),
        ("--max-body", "256MB", f"'256MB' {SIZE}"),
        ("--max-head", "never", f"'never' {SIZE}"),
        ("--max-buffered", "never", f"'never' {SIZE}"),
        (
            "--max-buffered",
            "15MiB",
            f"15MiB is too small for --workers 1: {LEAST}; use 16MiB or more",
        ),
        ("--request-log-max-size", "1GB", f"'1GB' {SIZE}"),
        ("--request-log-max-age", "1 day", f"'1 day' {DURATION}"),
        ("--request-log-total", "0", f"'0' {SIZE}"),
        ("--log-level", "loud", LEVEL),
    ],
)
def test_an_invalid_flag_is_rejected_with_a_valid_example(
    flag: str, value: str, message: str, slos: str, tmp_path: Path, capsys: Capture
) -> None:
    log = tmp_path / "log"
    flags = ["--upstream", ENGINE, "--slos", slos, "--request-log", str(log), flag, value]
    assert main(["sidecar", *flags]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {flag}: {message}\n"
    assert not log.exists()


def test_an_invalid_log_level_in_the_environment_is_rejected(
    slos: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("VLLM_SLO_LOG_LEVEL", "loud")
    assert main(["sidecar", "--upstream", ENGINE, "--slos", slos]) == 2
    assert capsys.readouterr().err == f"vllm-slo: VLLM_SLO_LOG_LEVEL: {LEVEL}\n"


SHARE = "is not a valid share; write a percentage from 0% to 100%, such as 1%"
REPORTS = "vllm-slo load warm-up --ready"
SALT = "a salt is one word of printable ASCII; generate one with: openssl rand -hex 32"


@pytest.mark.parametrize(
    "words, message",
    [
        *((f"{flag}=-1s", f"{flag}: '-1s' {DURATION}") for flag in ("--drain-delay", "--drain", "--linger")),
        *(
            (f"--otlp grpc://c --trace-good={text}", f"--trace-good: {text!r} {SHARE}")
            for text in ("1", "101%", "-1%", "")
        ),
        (
            "--ready-when-warm",
            f"--ready-when-warm: needs the token by which {REPORTS} reports; add --admin-token-file FILE",
        ),
        ("--request-log .", "--request-log: FOLDER cannot be written: is a directory"),
        ("--log-content all", "--log-content: 'all' is unknown; use off, hash or full"),
        ("--log-content full", "--log-content full: needs a request log; add --request-log FILE"),
        (
            "--log-content off --log-prefix-hashes",
            "--log-prefix-hashes: conflicts with --log-content off; remove one of them",
        ),
        (
            "--log-content full --request-log - --log-content-limit 65KiB",
            "--log-content-limit: 65KiB is above the maximum of 64KiB, so that programs can read each line",
        ),
        ("--otlp-header a=b", "--otlp-header: needs a collector; add --otlp URL"),
        (
            "--otlp grpc://c --otlp-semconv 1.0",
            "--otlp-semconv: '1.0' is not a supported version; use 1.36 or 1.44",
        ),
        *(
            (f"--prompt-hash-salt-file {name}", f"--prompt-hash-salt-file: {name}: {SALT}")
            for name in ("empty", "two-words", "not-ascii")
        ),
        ("--prompt-hash-salt-file x", "--prompt-hash-salt-file: x cannot be read: no such file or directory"),
    ],
)
def test_other_mistakes_are_rejected_with_a_reason(
    words: str, message: str, slos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"empty": "", "two-words": "two words", "not-ascii": "é"}.items():
        Path(name).write_text(text)
    assert main(["sidecar", "--upstream", ENGINE, "--slos", slos, *words.split()]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message.replace('FOLDER', str(tmp_path))}\n"


def test_an_slo_on_output_that_is_not_checked_is_rejected(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "output.yaml"
    path.write_text(SLOS + "  - {name: json, classes: [all], signal: valid_output, objective: 99%}\n")
    assert main(["sidecar", "--upstream", ENGINE, "--slos", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: {path}: the SLO 'json' judges valid_output, which needs --check-structured-output; "
        "add this flag or remove the SLO\n"
    )


@pytest.mark.slow
async def test_an_address_that_is_invalid_or_in_use_is_rejected(slos: str, busy: int) -> None:
    free = [f"127.0.0.1:{free_port()}" for _ in range(4)]  # different ports, because the processes run concurrently
    flags = ("--upstream", ENGINE, "--slos", slos)
    code = START + IMPATIENT + RUN
    runs = await asyncio.gather(
        run_command(*flags, "--listen", f"127.0.0.1:{busy}", "--metrics", free[0], code=code),
        run_command(*flags, "--listen", free[1], "--metrics", f"127.0.0.1:{busy}", code=code),
        run_command(*flags, "--listen", "localhost", "--metrics", free[2]),
        run_command(*flags, "--listen", free[3], "--metrics", "a..b:9464"),
    )
    assert [(status, errors.splitlines(keepends=True)[-1]) for status, _, errors in runs] == [
        (2, f"vllm-slo: --listen: cannot listen on 127.0.0.1:{busy}: address already in use\n"),
        (2, f"vllm-slo: --metrics: cannot listen on 127.0.0.1:{busy}: address already in use\n"),
        (2, f"vllm-slo: --listen: 'localhost' is not a valid address; {ADDRESS}\n"),
        (2, f"vllm-slo: --metrics: 'a..b:9464' is not a valid address: {HOST}; {ADDRESS}\n"),
    ]
