"""`vllm-slo simulate`: its flags, messages and exit status."""

import argparse
import os
import signal
import socket
import subprocess
import sys

import pytest

from compose.cli import main
from compose.simulation.command import configuration, configure
from tests.support.waiting import HANG

PROGRAM = [sys.executable, "-c", "from compose.cli import main; raise SystemExit(main())", "simulate"]


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(arguments)


def test_flags_override_the_preset() -> None:
    flags = "--preset toy --listen :9 --model m --max-num-seqs 3 --no-enable-prefix-caching --seed 5 --block-size 8"
    config = configuration(parsed(*flags.split()))
    assert (config.host, config.port, config.model, config.preset.name) == ("0.0.0.0", 9, "m", "toy")
    engine = config.flags
    assert (engine.max_num_seqs, engine.enable_prefix_caching, engine.seed, engine.block_size) == (3, False, 5, 8)


@pytest.mark.parametrize(
    "flags, message",
    [
        pytest.param(
            "--listen x", "--listen: 'x' is not a valid address; write HOST:PORT, such as 127.0.0.1:8000", id="listen"
        ),
        pytest.param(
            "--preset h100",
            "--preset: 'h100' is unknown; known: rtx6000ada-qwen2.5-14b, h200-qwen2.5-14b, h200-llama-70b-fp8, "
            "t4-qwen2.5-0.5b, half-t4-qwen2.5-0.5b, a100-qwen3.5-35b-a3b, toy",
            id="preset",
        ),
        pytest.param(
            "--restart-seconds -1", "--restart-seconds: -1.0 is not a time; use 0 or more seconds", id="restart seconds"
        ),
        pytest.param(
            "--invalid-output 2", "--invalid-output: 2.0 is not a share; use a number from 0 to 1", id="invalid output"
        ),
        pytest.param(
            "--preset toy --max-num-seqs 0 --seed -1",
            "--max-num-seqs: 0 is not a whole number from 1\n--seed: -1 is not a whole number from 0",
            id="all invalid settings",
        ),
    ],
)
def test_a_wrong_flag_is_one_message_and_exit_2(flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *flags.split()]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"


def test_a_switch_can_be_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parsed()
    monkeypatch.setattr(arguments, "enable_prefix_caching", "false")  # as compose.cli sets it
    assert configuration(arguments).flags.enable_prefix_caching is False


def test_a_busy_port_is_one_message_and_exit_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compose.simulation.command.configure_logging", lambda *_: None)  # of the tests' own process
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(["simulate", "--preset", "toy", "--listen", f"127.0.0.1:{port}"]) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: cannot listen on 127.0.0.1:{port}: address already in use; choose another with --listen\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_with_0_after_one_log_line(number: signal.Signals) -> None:
    command = [*PROGRAM, "--preset", "toy", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "."}) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(HANG) == 0
    assert " INFO simulator: serving a SIMULATED vLLM: model toy, preset toy, http://127.0.0.1:" in line
    assert rest == ""
