"""`vllm-slo simulate`: its flags, messages and exit status."""

import argparse
import os
import signal
import subprocess
import sys

import pytest

from compose.cli import main
from compose.simulation.command import configuration, configure
from tests.compose.golden_texts import assert_golden
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


REFUSED = {
    "address": "--listen x",
    "preset": "--preset h100",
    "time": "--restart-seconds -1",
    "share": "--invalid-output 2",
    "all invalid settings": "--preset toy --max-num-seqs 0 --seed -1",
}


def test_a_wrong_flag_is_one_message_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for case, flags in REFUSED.items():
        assert main(["simulate", *flags.split()]) == 2
        found[case] = capsys.readouterr().err.strip()
    assert_golden(__file__, "refused flags", found)


def test_a_switch_can_be_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parsed()
    monkeypatch.setattr(arguments, "enable_prefix_caching", "false")  # as compose.cli sets it
    assert configuration(arguments).flags.enable_prefix_caching is False


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
