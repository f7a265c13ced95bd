"""What a server that is frozen for 4 s does to the TTFT, as three ways to measure it state it: make bench NAME=freeze.

The server is the scripted one of the tests, stopped by SIGSTOP. Both runs have the same rate and ten connections.
"""

import argparse
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporters.text.errors import UsageError
from loadgen.report.tables import format_seconds
from loadgen.results.record import Record, read_records, read_run
from loadgen.results.summary import summarise_class
from tests.loadgen.load_process import running_load, started_server
from tests.support.waiting import HANG, wait_until

CONNECTIONS = 10
RATE = 50
_CLASSES = "classes: {siso: {share: 1, prompt_tokens: {min: 10, max: 20}, output_tokens: {min: 5, max: 20}}}"


@dataclass(frozen=True, slots=True)
class Figures:
    """99th percentiles of the TTFT in seconds."""

    intended: float | None
    sent: float | None
    closed_loop: float | None


def figures(open_loop: Sequence[Record], closed_loop: Sequence[Record]) -> Figures:
    opened, closed = summarise_class("open", open_loop), summarise_class("closed", closed_loop)
    return Figures(opened.ttft.p99, opened.ttft_sent.p99, closed.ttft.p99)


def _measure(folder: Path, phase: str, seconds: float, frozen: float, *flags: str) -> list[Record]:
    """The records of one run, in the middle of which the server is frozen."""
    folder.mkdir()
    scenario, out = folder / "scenario.yaml", folder / "out"
    phases = f"phases: [{{name: one, duration: {seconds:g}s, {phase}}}]"
    scenario.write_text(f"name: freeze\nseed: 18\ntimeout: 1m\nstream_share: 1\n{_CLASSES}\n{phases}\n")
    with started_server() as (server, target), running_load(scenario, target, out, *flags) as load:
        try:
            if not wait_until(lambda: _started(out) is not None):
                raise RuntimeError("the load did not start")
            time.sleep(max(0.0, (_started(out) or 0.0) + seconds / 2 - time.time()))
            server.send_signal(signal.SIGSTOP)
            time.sleep(frozen)
            server.send_signal(signal.SIGCONT)
            load.communicate(timeout=seconds + HANG)
        finally:
            server.send_signal(signal.SIGCONT)
    return read_records(out)


def _started(out: Path) -> float | None:
    try:
        return read_run(out).start or None
    except UsageError:  # not written yet
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each run (default: %(default)s)")
    parser.add_argument("--frozen", type=float, default=4.0, help="seconds without a server (default: %(default)s)")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        limits = settings.seconds, settings.frozen
        opened = _measure(Path(folder, "open"), f"rate: {RATE}", *limits, "--max-concurrency", str(CONNECTIONS))
        users = f"users: {CONNECTIONS}, think_time: {CONNECTIONS / RATE:g}s"
        found = figures(opened, _measure(Path(folder, "closed"), users, *limits))
    print(f"TTFT p99, server frozen for {settings.frozen:g} s of {settings.seconds:g} s, {RATE} requests/s")
    print(f"  open loop, from intended  {format_seconds(found.intended)}")
    print(f"  open loop, from sent      {format_seconds(found.sent)}")
    print(f"  closed loop               {format_seconds(found.closed_loop)}")


if __name__ == "__main__":
    main()
