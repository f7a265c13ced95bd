"""Detects, while a run sends at a constant rate, that the server does not keep up: its queue grows without bound."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from loadgen.results.steady_state import trend
from loadgen.schedule.phases import Phase, timeline

FEWEST = 100
"""Requests in the window below which nothing is decided."""
SHARE = 0.05
"""Share of the offered load that must pile up."""
INTERVAL = 1.0
"""Least seconds between two samples."""
_BATCHES = 10
_MOST_SAMPLES = 200  # in the window; more cost time and add nothing
_T = 4.5  # of Student's t distribution with _BATCHES - 2 degrees of freedom, one-sided at 0.1 %
_FILLED = 0.9  # age of the oldest request, as a share of that of the phase, above which the first ones are being served
_CONFIRM = 0.25


class Sample(NamedTuple):
    """Counts since the start of a phase at `at`, in seconds since that start; `oldest` is the age of a request."""

    at: float
    offered: int
    ended: int
    oldest: float

    @property
    def open(self) -> int:
        return self.offered - self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """Over-saturation in a phase: `since` and `detected` in seconds since the start of the run, rates in requests/s."""

    phase: str
    since: float
    detected: float
    offered: float
    completed: float


class SaturationWatch:
    """Samples a run once in `INTERVAL` and finds its first over-saturation."""

    def __init__(self, phases: Iterable[Phase]) -> None:
        self._timeline = list(timeline(phases))
        self._phase = ""
        self._samples: list[Sample] = []
        self._offered = self._ended = 0
        self.found: Saturation | None = None

    def sample(self, now: float, offered: int, ended: int, oldest_due: float | None) -> Saturation | None:
        """Count what was offered and has ended since the start of the run; returns an over-saturation only once."""
        for phase, start, end in self._timeline:
            if start <= now < end and phase.constant_rate and self.found is None:
                if phase.name != self._phase:
                    self._phase, self._samples = phase.name, []
                    self._offered, self._ended = offered, ended
                if self._samples and now - start < self._samples[-1].at + INTERVAL:
                    return None
                age = 0.0 if oldest_due is None else now - oldest_due
                self._samples.append(Sample(now - start, offered - self._offered, ended - self._ended, age))
                self.found = find_saturation(self._samples, phase=phase.name, start=start)
                return self.found
        return None


def find_saturation(samples: Sequence[Sample], *, phase: str = "", start: float = 0.0) -> Saturation | None:
    """The over-saturation that samples of a phase at a constant rate show; they are about evenly spaced.

    In the second half of the samples, both the open requests and the age of the oldest rise, each by at least `SHARE`
    of the load, and they did so a quarter of the time ago too: a burst ends. Open requests also rise while the first
    ones are being served; then the oldest is about as old as the phase, and nothing is decided.
    """
    rise = _rise(samples)
    if rise is None or _rise(samples[: int(len(samples) * (1 - _CONFIRM))]) is None:
        return None
    first, last = samples[len(samples) // 2], samples[-1]
    seconds = last.at - first.at
    usual = median(sample.open for sample in samples[: len(samples) // 4])
    began = last.offered - (last.open - usual) / rise  # where the line crosses the usual level
    since = next((sample.at for sample in samples if sample.offered >= began), last.at)
    return Saturation(
        phase=phase,
        since=round(start + (0.0 if since < last.at / 4 else since), 3),
        detected=round(start + last.at, 3),
        offered=round((last.offered - first.offered) / seconds, 3),
        completed=round((last.ended - first.ended) / seconds, 3),
    )


def _rise(samples: Sequence[Sample]) -> float | None:
    """Rise of the open requests for each one offered; None if they do not rise beyond doubt."""
    half = len(samples) // 2
    window = samples[half :: max(1, -(-half // _MOST_SAMPLES))]
    if len(window) < 2 * _BATCHES or window[-1].offered - window[0].offered < FEWEST:
        return None
    if window[0].oldest > _FILLED * window[0].at:
        return None
    growth = trend([(sample.offered, sample.open) for sample in window], _BATCHES, _T)
    ageing = trend([(sample.at, sample.oldest) for sample in window], _BATCHES, _T)
    return growth.slope if all(each.slope > max(SHARE, each.margin) for each in (growth, ageing)) else None
