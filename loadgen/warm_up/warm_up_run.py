"""Sends the passes of a warm-up until one is not faster than those before, and prints TTFT cold and warm."""

import signal
import sys
from collections import Counter
from collections.abc import Sequence

import gevent
from rich.console import Console

from loadgen.report.tables import format_seconds
from loadgen.results.record import ClientOutcome, Record
from loadgen.run import preflight, warm_up
from loadgen.run.load_run import WaveSender, raise_file_limit
from loadgen.run.warm_up import COLD, WARM, Wave
from loadgen.warm_up.ramp import Pass, Ramp, is_warm, lengths, medians
from loadgen.warm_up.settings import WarmUpSettings

_INTERRUPTED = 130


def run(settings: WarmUpSettings) -> int:
    """Warm the target up and report; returns 1 if it is not warm.

    Raises:
        UsageError: the target or the sidecar does not respond, or no class has requests to send.
    """
    client, model = preflight.connect(settings.run)
    context = preflight.context_length(settings.run, client, model) if settings.run.check else None
    ramp = Ramp(
        lengths(settings.run.slos.classes, context, completions=settings.completions), settings.largest, settings.seed
    )
    raise_file_limit(settings.largest)
    sending = WarmUpRun(ramp, WaveSender(settings.run, model, client), settings.most_passes)
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, sending.stop)
    print(f"warming up {model} at {settings.run.target}: {ramp.description}", flush=True)
    status = sending.run()
    if settings.ready is not None and status == 0:
        settings.ready.report_warm()
        print(f"reported to {settings.ready.url}")
    return status


class WarmUpRun:
    """The passes of one warm-up."""

    def __init__(self, ramp: Ramp, sender: WaveSender, most_passes: int) -> None:
        self._ramp = ramp
        self._sender = sender
        self._most_passes = most_passes
        self._stopped = False
        self._passes: list[Pass] = []

    def stop(self) -> None:
        """End the warm-up now."""
        self._stopped = True
        self._sender.stop()

    def run(self) -> int:
        """Send passes until one is not faster, and report; returns the exit status."""
        warm = False
        while not warm and len(self._passes) < self._most_passes:
            if not self._send_pass():
                return _INTERRUPTED if self._stopped else 1
            warm = is_warm([medians(each) for each in self._passes])
        self._report()
        if not warm:
            print(
                f"not warm after {len(self._passes)} passes: the last one was still faster than those before; "
                "run it again, or set a larger --max-passes",
                file=sys.stderr,
            )
        return 0 if warm else 1

    def _send_pass(self) -> bool:
        """Whether all requests of a pass were answered; says why not."""
        sent: dict[int, list[Record]] = {}
        for wave in self._ramp.waves(len(self._passes)):
            records = self._sender.send(wave)
            if self._stopped:
                print("interrupted: the engine may not be warm", file=sys.stderr)
                return False
            if failures := [each for each in records if each.outcome is not ClientOutcome.OK or each.ttft is None]:
                print(_failure(failures, len(wave)), file=sys.stderr)
                return False
            sent.setdefault(len(wave), []).extend(records)
        self._passes.append(sent)
        figures = medians(sent).values()
        count = sum(map(len, sent.values()))
        print(
            f"pass {len(self._passes)}: {count} requests, median TTFT {format_seconds(min(figures))} to "
            f"{format_seconds(max(figures))}",
            flush=True,
        )
        return True

    def _report(self) -> None:
        cold, warm = self._passes[0], self._passes[-1]
        waves = [
            Wave(name, size, list(records))
            for name, one in ((COLD, cold), (WARM, warm))
            for size, records in one.items()
        ]
        Console().print(warm_up.table(waves, "TTFT of requests at once, in the first and in the last pass"))
        first, one = cold[1][0].ttft, medians(warm)[1]
        if first is not None:
            print(
                f"cold {format_seconds(first)}, warm {format_seconds(one)}: the first request waited {first / one:.1f} "
                f"times as long for its first token as one does after {len(self._passes)} passes"
            )


def _failure(failures: Sequence[Record], size: int) -> str:
    ((reason, _),) = Counter(map(_reason, failures)).most_common(1)
    return (
        f"not warm: {len(failures)} of {size} requests at once failed: {reason}; correct what it reports, or set a "
        "smaller --largest or a longer --timeout"
    )


def _reason(record: Record) -> str:
    if record.outcome is ClientOutcome.OK:
        return "a response without a token"
    return f"{record.outcome}: {record.error}" if record.error else record.outcome
