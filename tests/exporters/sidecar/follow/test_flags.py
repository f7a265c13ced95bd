"""Flags that `vllm-slo sidecar --follow` rejects before it starts."""

from pathlib import Path

import msgspec
import pytest

from compose.cli import main
from exporters.configuration.flags import flags_of
from exporters.configuration.sidecar import LogKind, SidecarFlags
from exporters.sidecar.follow.state import FollowState
from exporters.sidecar.ingest.saved_series import SavedSeries

ENGINE = "http://127.0.0.1:1"


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main(["sidecar", "--upstream", ENGINE, *flags]) == 2
    return capsys.readouterr().err


ONLY_RELAY = [flag for flag in flags_of(SidecarFlags) if set(flag.no_effect) == set(LogKind)]


def test_all_flags_of_the_relay_are_rejected_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"DURATION": "7s", "URL": "http://127.0.0.1:7", "PORT": "metrics"}
    words = [
        word
        for flag in ONLY_RELAY
        for word in (flag.option, *(() if flag.kind is None else (values.get(flag.kind.metavar, "7"),)))
    ]
    errors = refusal(capsys, "--follow", str(tmp_path / "log"), "--follow-state", str(tmp_path / "state"), *words)
    reason = "has no effect with --follow and --follow-format vllm-slo; remove it\n"
    assert errors == "vllm-slo: " + "".join(f"{flag.option}: {reason}" for flag in ONLY_RELAY)
    assert list(tmp_path.iterdir()) == []


def test_a_flag_of_request_logs_is_rejected_with_an_access_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--follow", str(tmp_path / "log"), "--follow-format", "nginx", "--log-prefix-hashes"]
    assert refusal(capsys, *flags) == (
        "vllm-slo: --log-prefix-hashes: has no effect with --follow and --follow-format nginx; remove it\n"
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        pytest.param(
            ["--follow", "{log}"],
            "--follow: needs a file that keeps the position and the counts; add --follow-state FILE",
            id="no state",
        ),
        pytest.param(
            ["--follow-format", "nginx"], "--follow-format: needs a log; add --follow FILE", id="no log for a format"
        ),
        pytest.param(["--follow-state", "{state}"], "--follow-state: needs a log; add --follow FILE", id="no log"),
        pytest.param(
            ["--follow", "{log}", "--follow-format", "apache"],
            "--follow-format: apache: neither a file nor a built-in log format; known: envoy, litellm, nginx, vllm-slo",
            id="format",
        ),
        pytest.param(
            ["--follow", "{log}", "--follow-state", "{log}"],
            "--follow-state: {log} is the followed log; use another file",
            id="one file",
        ),
        pytest.param(
            ["--follow", "{folder}", "--follow-state", "{state}"],
            "--follow: {folder} is not a regular file",
            id="a folder",
        ),
        pytest.param(
            ["--follow", "{log}", "--follow-state", "{broken}"],
            "--follow-state: {broken} is not a valid state file: Expected `object`, got `int`; without it, the log is "
            "counted from its start",
            id="invalid state",
        ),
        pytest.param(
            ["--follow", "{log}", "--follow-state", "{other}"],
            "--follow-state: {other} belongs to /elsewhere with --follow-format nginx; use another file for {log} with "
            "--follow-format vllm-slo",
            id="state of another log",
        ),
        pytest.param(
            ["--follow", "{log}", "--follow-state", "/proc/state"],
            "--follow-state: /proc/state cannot be written: no such file or directory",
            id="state cannot be written",
        ),
    ],
)
def test_invalid_flags_are_rejected(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {name: tmp_path / name for name in ("log", "state", "broken", "other", "folder")}
    paths["folder"].mkdir()
    paths["broken"].write_bytes(b"{}")
    state = FollowState(log="/elsewhere", format="nginx", positions=[], lines={}, series=SavedSeries([], {}, {}))
    paths["other"].write_bytes(msgspec.msgpack.encode(state))
    words = [word.format(**paths) for word in flags]
    assert refusal(capsys, *words) == f"vllm-slo: {message.format(**paths)}\n"


def test_a_flag_of_the_relay_in_the_environment_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SLO_LISTEN", "127.0.0.1:7")
    errors = refusal(capsys, "--follow", str(tmp_path / "log"), "--follow-state", str(tmp_path / "state"))
    assert errors == "vllm-slo: VLLM_SLO_LISTEN: has no effect with --follow and --follow-format vllm-slo; remove it\n"
