"""Every command answers bad input by one message and its exit status, never by a traceback."""

import builtins
import contextlib
import io
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compose.cli import main
from exporters.sidecar import command as sidecar_command
from exporters.text.output_files import write_file
from tests.support.ports import busy_port
from tests.support.sidecar_process import SLOS
from tests.support.waiting import HANG

Words = tuple[str, ...]
ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:1"
SIDECAR = ("sidecar", "--upstream", NOWHERE)
ALERTMANAGER = ("alerts", "alertmanager", "--page", "webhook=http://h", "--ticket", "webhook=http://h")
RUN = ("load", "run", "--target", NOWHERE, "--out", "{out}")

READ = [
    (*SIDECAR, "--config"),
    (*SIDECAR, "--slos"),
    ("sidecar", "--upstream", "https://127.0.0.1:1", "--upstream-ca"),
    (*SIDECAR, "--tls-key", "/dev/null", "--tls-cert"),
    (*SIDECAR, "--prompt-hash-salt-file"),
    (*SIDECAR, "--engine-token-file"),
    (*SIDECAR, "--roofline"),
    (*SIDECAR, "--metrics-auth-file"),
    (*SIDECAR, "--admin-token-file"),
    ("drain", "--admin-token-file"),
    ("flip", "--set", "a=b", "--admin-token-file"),
    ("doctor", "--slos"),
    ("doctor", "--rules"),
    ("doctor", "--engine-token-file"),
    ("alerts", "check", "--slos"),
    ("alerts", "check", "--roofline"),
    ("alerts", "explain", "--slos"),
    ("alerts", "render", "--slos"),
    (*ALERTMANAGER, "--slos"),
    ("dashboards", "render", "--out", "{out}", "--slos"),
    ("requests", "--request-log"),
    ("backfill", "--out", "{out}", "--promtool", "/bin/true", "--request-log"),
    ("backfill", "--out", "{out}", "--request-log", "x", "--slos"),
    ("compare", "--around", "last", "--request-log"),
    ("compare", "--around", "last", "--request-log", "x", "--slos"),
    ("diagnose", "--request-log"),
    ("diagnose", "--request-log", "x", "--slos"),
    ("diagnose", "--request-log", "x", "--roofline"),
    ("roofline", "--gpu", "H200", "--model-config"),
    ("roofline", "--gpu", "H200", "--model-config", "x", "--gpu-file"),
    (*RUN, "--scenario"),
    (*RUN, "--slos"),
    (*RUN, "--api-key-file"),
    ("load", "run", "--target", "https://127.0.0.1:1", "--out", "{out}", "--target-ca"),
    ("load", "find-max", "--target", NOWHERE, "--out", "{out}", "--scenario"),
    ("load", "replay", "--target", NOWHERE, "--out", "{out}", "--trace"),
    ("load", "report"),
    ("load", "compare", "{file}", "x"),
    ("experiment", "run", "--virtual", "--out", "{out}"),
    ("experiment", "report"),
    ("experiment", "score"),
    ("experiment", "grade"),
    ("experiment", "windows"),
    ("up", "--slos"),
    ("up", "--scenario"),
]
"""Commands up to the last word, which is a file that they read."""

BINARY = bytes(range(256)) * 4

MAKE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path,
    "a directory": Path.mkdir,
    "binary": lambda path: path.write_bytes(BINARY),
    "empty": lambda path: path.write_bytes(b""),
    "no permission": lambda path: path.write_bytes(b"a: b"),
    "nested too deeply": lambda path: path.write_text("[" * 5000),
}
EMPTY_IS_VALID, JSON = {"--config", "--request-log"}, {"--roofline", "--model-config", "--trace"}
CASES = [
    (words, kind)
    for words, kind in itertools.product(READ, MAKE)
    if (kind != "empty" or words[-1] not in EMPTY_IS_VALID) and (kind != "nested too deeply" or words[-1] in JSON)
]


@pytest.fixture(autouse=True)
def _no_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_command, "supervise", lambda *_: 0)


def deny(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who may not open the file; tests may run as root, who may."""
    real = io.open

    def refuse(file: Any, *arguments: Any, **named: Any) -> Any:
        if str(file) == str(path):
            raise PermissionError(13, "Permission denied", str(file))
        return real(file, *arguments, **named)

    monkeypatch.setattr(io, "open", refuse)
    monkeypatch.setattr(builtins, "open", refuse)


def one_message(capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a command, which is on standard error; `alerts check` prints its findings."""
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert err.startswith("vllm-slo") or "mistake: " in out
    return out + err


def given(words: Words, out: Path, value: object = "") -> list[str]:
    """The words of a command with a value in the place of {file}, or as the last word."""
    filled = [word.format(out=out, file=value) for word in words]
    return filled if "{file}" in words else [*filled, str(value)]


def name(each: object) -> str:
    return (
        str(each)
        if not isinstance(each, tuple)
        else " ".join(word for word in each if not word.startswith(("http", "{")))
    )


@pytest.mark.parametrize("words, kind", CASES, ids=name)
def test_a_file_that_cannot_be_used_is_named(
    words: Words, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "given"
    MAKE[kind](path)
    if kind == "no permission":
        deny(path, monkeypatch)
    assert main(given(words, tmp_path / "out", path)) == 2
    assert str(path) in one_message(capsys)


@pytest.mark.parametrize(
    "words, status",
    [
        ((*SIDECAR, "--config"), 0),
        (("requests", "--request-log"), 0),
        (("backfill", "--out", "{out}", "--promtool", "/bin/true", "--request-log"), 2),
        (("compare", "--around", "last", "--request-log"), 2),
        (("diagnose", "--request-log"), 2),
    ],
    ids=name,
)
def test_an_empty_file_is_valid_and_may_be_too_little(
    words: Words, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration file without keys, a log without requests."""
    path = tmp_path / "given"
    path.write_bytes(b"")
    assert main(given(words, tmp_path / "out", path)) == status
    assert "Traceback" not in capsys.readouterr().err


FOLDERS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path,
    "a file": lambda path: path.write_bytes(b""),
    "empty": Path.mkdir,
    "binary": lambda path: write_file(path / "a.json", "\0"),
    "other JSON": lambda path: write_file(path / "a.json", '{"panels": [1]}'),
    "nested too deeply": lambda path: write_file(path / "a.json", "[" * 5000),
}


@pytest.mark.parametrize("action", ["audit", "preview"])
@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_of_dashboards_that_cannot_be_used_is_named(
    action: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FOLDERS[kind](tmp_path / "given")
    assert main(["dashboards", action, "--prometheus", NOWHERE, "--dashboards", str(tmp_path / "given")]) == 2
    assert str(tmp_path / "given") in one_message(capsys)


WRITTEN = [
    (*SIDECAR, "--request-log"),
    (*SIDECAR, "--state"),
    (*SIDECAR, "--follow", "x", "--follow-state"),
    ("alerts", "render", "--out"),
    ("alerts", "schema", "--out"),
    (*ALERTMANAGER, "--out"),
    ("dashboards", "render", "--out"),
    ("backfill", "--promtool", "/bin/true", "--request-log", "/dev/null", "--out"),
    ("experiment", "run", "seed-000", "--virtual", "--out"),
    ("traces", "--listen", "127.0.0.1:0", "--trace-file"),
    ("webhook", "--listen", "127.0.0.1:0", "--out"),
    ("up", "--ports", "auto", "--no-load", "--out"),
    ("demo", "--ports", "auto", "--out"),
]
"""Commands up to the last word, which is a file or a folder that they write."""


@pytest.mark.parametrize("words", WRITTEN, ids=name)
def test_an_output_that_cannot_be_written_is_named(
    words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "below"
    assert main(given(words, tmp_path, path)) == 2
    assert str(tmp_path / "file") in one_message(capsys)


URLS = [
    ("sidecar", "--upstream"),
    (*SIDECAR, "--engine-metrics"),
    (*SIDECAR, "--otlp"),
    (*SIDECAR, "--engine-spans"),
    ("drain", "--admin-token-file", "{file}", "--sidecar"),
    ("doctor", "--upstream"),
    ("doctor", "--sidecar"),
    ("doctor", "--prometheus"),
    ("alerts", "render", "--grafana"),
    ("alerts", "render", "--runbooks"),
    ("dashboards", "render", "--out", "{out}", "--traces-url"),
    ("dashboards", "audit", "--prometheus"),
    ("dashboards", "preview", "--prometheus"),
    ("compare", "--around", "last", "--prometheus"),
    ("diagnose", "--prometheus"),
    ("load", "run", "--out", "{out}", "--target"),
    ("load", "find-max", "--out", "{out}", "--target"),
    ("up", "--ports", "auto", "--engine"),
    ("up", "--ports", "auto", "--otlp"),
]
"""Commands up to the last word, which is a URL."""


@pytest.mark.parametrize(
    "url", ["localhost:8000", "http://", "ftp://h:1", "http://h:99999", "http://[::1", "http://a..b"]
)
@pytest.mark.parametrize("words", URLS, ids=name)
def test_a_wrong_url_is_refused_with_its_flag(
    words: Words, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    assert main([*(word.format(out=tmp_path / "out", file=token) for word in words), url]) == 2
    assert words[-1] in one_message(capsys)


FLIP = ("flip", "--set", "a=b", "--admin-token-file", "{file}")
UNREACHABLE = [
    ("drain", "--admin-token-file", "{file}", "--timeout", "1s", "--sidecar", NOWHERE),
    (*FLIP, "--sidecar", NOWHERE),
    (*FLIP, "--maintenance", "1m", "--alertmanager", NOWHERE),
    ("dashboards", "audit", "--prometheus", NOWHERE),
    ("dashboards", "preview", "--out", "{out}", "--prometheus", NOWHERE),
    ("compare", "--around", "last", "--prometheus", NOWHERE),
    ("diagnose", "--prometheus", NOWHERE),
]


@pytest.mark.parametrize("words", UNREACHABLE, ids=name)
def test_a_server_that_cannot_be_reached_is_named(
    words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    assert main([word.format(out=tmp_path / "out", file=token) for word in words]) == 3
    message = one_message(capsys)
    assert NOWHERE in message
    assert "refused" in message


LISTENING = [
    ("traces", "--trace-file", "{out}", "--listen"),
    ("webhook", "--listen"),
    ("simulate", "--preset", "toy", "--listen"),
    ("dashboards", "preview", "--prometheus", NOWHERE, "--serve"),
]
"""Those of the sidecar are in `test_refused_flags.py`."""


@pytest.mark.parametrize("words", LISTENING, ids=name)
def test_a_port_in_use_is_named(words: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with busy_port() as port:
        assert main([*(word.format(out=tmp_path / "out") for word in words), f"127.0.0.1:{port}"]) == 2
    message = one_message(capsys)
    assert words[-1] in message
    assert f"127.0.0.1:{port}: address already in use" in message


SERVERS = [
    (("sidecar", "--upstream", NOWHERE, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--linger", "0"), 0),
    (("traces", "--trace-file", "{out}", "--listen", "127.0.0.1:0"), 0),
    (("webhook", "--listen", "127.0.0.1:0"), 0),
    (("simulate", "--preset", "toy", "--listen", "127.0.0.1:0"), 0),
    (("dashboards", "preview", "--prometheus", NOWHERE, "--serve", "127.0.0.1:0"), 0),
    (("requests", "--request-log", "-"), 130),
    (("experiment", "run", "seed-000", "--virtual", "--out", "{out}"), 130),
]
"""Commands that run until ctrl-c, with the exit status that they then have."""

START = """\
import sys
from compose import cli, console_script
try:
    print("started", flush=True)
except KeyboardInterrupt:
    sys.exit(130)
sys.exit(console_script.main())
"""


def _output_at_the_end(process: "subprocess.Popen[str]", *, again: bool) -> tuple[str, str]:
    """Output and errors; with `again`, a second ctrl-c follows.

    CPython drops an interrupt that arrives in a callback of its import machinery.
    """
    if again:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=HANG / 6)
        process.send_signal(signal.SIGINT)
    return process.communicate(timeout=HANG)


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 1.5], ids=["starting", "running"])
def test_ctrl_c_ends_a_command_without_a_traceback(pause: float, tmp_path: Path) -> None:
    """All commands at once, as most of the time they wait."""
    (tmp_path / "slos.yaml").write_text(SLOS)
    running = []
    for number, (words, status) in enumerate(SERVERS):
        command = [sys.executable, "-c", START, *(word.format(out=tmp_path / str(number)) for word in words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append((words, status, subprocess.Popen(command, cwd=ROOT, text=True, **pipes)))  # type: ignore[call-overload]
    for _, _, process in running:
        assert process.stdout.readline() == "started\n"
    time.sleep(pause)  # not a condition: the commands are ended wherever they are then
    for _, _, process in running:
        process.send_signal(signal.SIGINT)
    for words, status, process in running:
        _, errors = _output_at_the_end(process, again=not pause)
        assert "Traceback" not in errors, words
        assert process.returncode in {status, 130}, words  # 130 while it still starts
