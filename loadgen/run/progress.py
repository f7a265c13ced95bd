"""Shows the progress of a run: a live table on a terminal, else a log line every ten seconds."""

import logging
import sys
from collections.abc import Sequence
from time import monotonic
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadgen.report.tables import INVALID, format_percent, format_seconds
from loadgen.results.client_health import find_faults
from loadgen.results.saturation import Saturation
from loadgen.run.live_figures import WINDOW, ClassFigures, LiveFigures, Recent
from loadgen.run.settings import RunSettings
from loadgen.run.stalls import StallWatch
from loadgen.schedule.phases import Phase, timeline

_log = logging.getLogger(__name__)

TICK = 0.5
LOG_INTERVAL = 10.0
DRAINING = "draining"
_WIDE = 100  # columns from which the table has requests that ended and figures of the whole run


class Progress:
    """Shows the state of one run at each call of `tick`."""

    def __init__(
        self,
        figures: LiveFigures,
        start: float,
        settings: RunSettings,
        stalls: StallWatch,
        console: Console | None = None,
    ) -> None:
        """`start` is that of the run, by the monotonic clock."""
        self._figures = figures
        self._start = start
        self._settings = settings
        self._stalls = stalls
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._streams: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
        self._next = LOG_INTERVAL
        self.saturation: Saturation | None = None

    def tick(self) -> None:
        now = monotonic() - self._start
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            if self._live is None:
                self._begin()
            if self._live is not None:
                self._live.update(self.render(now), refresh=True)
        elif now >= self._next:
            self._next += LOG_INTERVAL
            _log.info("%s", self.line(now))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            for handler, stream in self._streams:
                handler.setStream(stream)

    def _begin(self) -> None:
        original = sys.stderr
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        for handler in logging.getLogger().handlers:  # so that log lines appear above the table
            if isinstance(handler, logging.StreamHandler) and handler.stream is original:
                self._streams.append((handler, original))
                handler.setStream(sys.stderr)  # the one of Live

    def line(self, now: float) -> str:
        """The state in one line."""
        phase, _, _ = _phase(self._settings.phases, self._settings.plan.longest_timeout, now)
        row = self._figures.total
        recent = row.recent(now)
        saturated = f"  {_saturated(self.saturation)}" if self.saturation else ""
        invalid = "".join(f"  {INVALID} so far: {fault}" for fault in self._faults(now))
        return (
            f"{now:5.0f} s {phase:<10} offered {row.offered}  open {row.open}  "
            f"ok {row.ok}  not ok {row.ended - row.ok}  last {WINDOW} s: goodput {format_percent(recent.goodput)}, "
            f"TTFT p50 {format_seconds(recent.ttft_p50)}, {recent.tokens_per_second:.0f} output tokens/s  "
            f"worst send lag {format_seconds(row.worst_lag)}{saturated}{invalid}"
        )

    def render(self, now: float) -> RenderableType:
        """The state as a table."""
        settings = self._settings
        name, start, end = _phase(settings.phases, settings.plan.longest_timeout, now)
        header = Table.grid(padding=(0, 1))
        for _ in range(3):
            header.add_column(no_wrap=True)
        share = (now - start) / (end - start) if end > start else 1.0
        total = sum(phase.duration for phase in settings.phases)
        left = f"{_clock(end - now)} left"
        if now < total and end < total:
            left += f", {_clock(total - now)} of the run"
        header.add_row(
            Text(name, style="bold", overflow="ellipsis"), ProgressBar(100, min(100, share * 100), width=24), left
        )
        return Group(
            header,
            _table(self._figures, now, settings.max_send_lag, wide=self._console.width >= _WIDE),
            *([Text(_saturated(self.saturation), style="bold yellow")] if self.saturation else ()),
            *(Text(f"{INVALID} so far: {fault}", style="bold red") for fault in self._faults(now)),
        )

    def _faults(self, now: float) -> list[str]:
        """What would make the run invalid if it ended now; in its first seconds the shares say nothing."""
        row = self._figures.total
        if now < WINDOW:
            return []
        return list(
            find_faults(
                send_lag=row.lag.percentile(99),
                max_send_lag=self._settings.max_send_lag,
                stalls=self._stalls.count,
                stalled=self._stalls.seconds,
                seconds=now,
                offered=row.ended,
                sent=row.ended - row.not_sent,
            )
        )


def _saturated(found: Saturation) -> str:
    return (
        f"saturated since about {found.since:.0f} s: {found.offered:.3g} requests/s offered, {found.completed:.3g} end"
    )


def _phase(phases: Sequence[Phase], timeout: float, now: float) -> tuple[str, float, float]:
    """Name, start and end of the phase at `now`; after the last one, open requests have up to `timeout` seconds."""
    end = 0.0
    for phase, start, end in timeline(phases):
        if now < end:
            return phase.name, start, end
    return DRAINING, end, end + timeout


def _table(figures: LiveFigures, now: float, max_send_lag: float, *, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1 if wide else 0, 0, 0), show_edge=False)
    table.add_column("class", no_wrap=True, overflow="ellipsis", max_width=24 if wide else 12)
    counts = ("offered", "open", "ended", "ok", "not ok") if wide else ("offered", "open", "ok", "not ok")
    times = ("goodput", "TTFT p50", "p95", "tok/s", "lag")
    for heading in (*counts, *times, *(("goodput", "TTFT p50", "p95") if wide else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in figures.rows:
        recent = row.recent(now)
        cells = _counts(row, wide=wide) + _recent(recent, max_send_lag)
        table.add_row(row.name, *cells, *(_so_far(row) if wide else ()))
    table.caption = f"goodput to lag: of the last {WINDOW} s" + ("; the last three: of the run so far" if wide else "")
    table.caption_justify = "left"
    return table


def _counts(row: ClassFigures, *, wide: bool) -> list[Text | str]:
    bad = row.ended - row.ok
    ended = [str(row.ended)] if wide else []
    return [str(row.offered), str(row.open), *ended, str(row.ok), Text(str(bad), style="red" if bad else "")]


def _recent(recent: Recent, max_send_lag: float) -> list[Text | str]:
    late = recent.worst_lag is not None and recent.worst_lag > max_send_lag
    return [
        _percent(recent.goodput),
        format_seconds(recent.ttft_p50),
        format_seconds(recent.ttft_p95),
        f"{recent.tokens_per_second:.0f}",
        Text(format_seconds(recent.worst_lag), style="red" if late else ""),
    ]


def _so_far(row: ClassFigures) -> list[str]:
    return [_percent(row.goodput), format_seconds(row.ttft.percentile(50)), format_seconds(row.ttft.percentile(95))]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.3g} %"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02}"
