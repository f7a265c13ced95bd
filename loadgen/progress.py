"""What is going on, on stderr: a line that renews itself on a terminal, else one line every ten seconds."""

from collections.abc import Sequence
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.text import Text

from loadgen.arrivals import Phase
from loadgen.dispatcher import Offering
from loadgen.report import spell
from loadgen.request_record import Fate, Record
from loadgen.summary import quantiles

EVERY = 1.0
EVERY_IN_A_LOG = 10.0
RECENT = 10.0  # seconds over which the line looks back


class Status:
    """Prints the state of one run whenever `tick` is called, about once a second."""

    def __init__(self, offering: Offering, phases: Sequence[Phase], records: Sequence[Record]) -> None:
        self._offering = offering
        self._phases = phases
        self._records = records
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._next = EVERY_IN_A_LOG

    def tick(self) -> None:
        now = monotonic() - self._offering.start
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(Text(self.line(now)), refresh=True)
        elif now >= self._next:
            self._next += EVERY_IN_A_LOG
            self._console.print(self.line(now), highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, now: float) -> str:
        recent = []
        for record in reversed(self._records):  # they come in the order in which they ended
            if record.closed < now - RECENT:
                break
            recent.append(record)
        ok = sum(record.outcome is Fate.OK for record in recent)
        ttft = quantiles(record.ttft for record in recent if record.ttft is not None).p50
        return (
            f"{now:5.0f} s {self._phase(now):<10} offered {self._offering.offered}  open {self._offering.open}  "
            f"ended {len(self._records)}  last {RECENT:.0f} s: ok {ok}, not ok {len(recent) - ok}, "
            f"TTFT p50 {spell(ttft)}  worst send lag {spell(self._offering.worst_lag)}"
        )

    def _phase(self, now: float) -> str:
        end = 0.0
        for phase in self._phases:
            end += phase.duration
            if now < end:
                return phase.name
        return "draining"
