"""Shows the progress of a run: a live line on a terminal, else a log line every ten seconds."""

import logging
from collections.abc import Sequence
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.text import Text

from loadgen.arrivals import Phase, timeline
from loadgen.dispatcher import Dispatcher
from loadgen.report import format_seconds
from loadgen.request_record import ClientOutcome, Record
from loadgen.saturation import Saturation
from loadgen.summary import quantiles

_log = logging.getLogger(__name__)

TICK = 1.0
LOG_INTERVAL = 10.0
RECENT = 10.0  # window of the request counts and of the TTFT, in seconds


class ProgressLine:
    """Shows the state of one run at each call of `tick`, about once a second."""

    def __init__(self, dispatcher: Dispatcher, phases: Sequence[Phase], records: Sequence[Record]) -> None:
        self._dispatcher = dispatcher
        self._phases = phases
        self._records = records
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._next = LOG_INTERVAL
        self.saturation: Saturation | None = None

    def tick(self) -> None:
        now = monotonic() - self._dispatcher.start
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(Text(self.line(now)), refresh=True)
        elif now >= self._next:
            self._next += LOG_INTERVAL
            _log.info("%s", self.line(now))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, now: float) -> str:
        recent = []
        for record in reversed(self._records):  # sorted by end time
            if record.closed < now - RECENT:
                break
            recent.append(record)
        ok = sum(record.outcome is ClientOutcome.OK for record in recent)
        ttft = quantiles(record.ttft for record in recent if record.ttft is not None).p50
        saturated = "" if self.saturation is None else f"  saturated since {self.saturation.since:.0f} s"
        return (
            f"{now:5.0f} s {self._phase(now):<10} offered {self._dispatcher.offered}  open {self._dispatcher.open}  "
            f"ended {len(self._records)}  last {RECENT:.0f} s: ok {ok}, not ok {len(recent) - ok}, "
            f"TTFT p50 {format_seconds(ttft)}  worst send lag {format_seconds(self._dispatcher.worst_lag)}"
            f"{saturated}"
        )

    def _phase(self, now: float) -> str:
        return next((phase.name for phase, _, end in timeline(self._phases) if now < end), "draining")
