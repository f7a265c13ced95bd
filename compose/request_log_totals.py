"""The request log read back, and what a stretch of it amounts to per class."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from exporters.errors import UsageError, system_reason
from exporters.signals import Outcome, Verdict
from exporters.verdicts import goodput

TOTAL = "all"


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a line that the lab reads; `time` is when the request arrived."""

    time: datetime
    request_class: str = msgspec.field(name="class")
    stream: bool
    outcome: Outcome
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    queue_ms: float | None = None
    e2e_ms: float
    slo: dict[str, Verdict] = {}

    @property
    def arrived(self) -> float:
        return self.time.timestamp()

    @property
    def ended(self) -> float:
        return self.arrived + self.e2e_ms / 1000

    @property
    def good(self) -> bool | None:
        return goodput(self.slo.values())


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time, unix seconds; the end is not in it."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0.0)

    def holds(self, moment: float) -> bool:
        return self.start <= moment < self.end


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """One class over one window.

    All are of requests that arrived in the window, but for `tokens_per_second` (prompt and completion), which is of
    those that ended in it. `ttft` is of the streams that got a first token; in an overload the others are the worse.
    """

    name: str
    offered: int
    ok: int
    goodput: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    tokens_per_second: float
    cache_hit_ratio: float | None


def read(path: Path) -> list[Logged]:
    """Every line of a request log.

    Raises:
        UsageError: it cannot be read.
    """
    decode = msgspec.json.Decoder(Logged).decode
    try:
        return [decode(line) for line in path.read_bytes().splitlines()]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: is no request log: {error}") from error


def figures(requests: Iterable[Logged], classes: Sequence[str], window: Window) -> tuple[ClassFigures, ...]:
    """Each class, then all of them together."""
    these = list(requests)
    return (
        *(_figures(name, [each for each in these if each.request_class == name], window) for name in classes),
        _figures(TOTAL, these, window),
    )


def _figures(name: str, requests: Sequence[Logged], window: Window) -> ClassFigures:
    arrived = [each for each in requests if window.holds(each.arrived)]
    ended = [each for each in requests if window.holds(each.ended)]
    judged = [each.good for each in arrived if each.good is not None]
    ttft = sorted(each.ttft_ms / 1000 for each in arrived if each.stream and each.ttft_ms is not None)
    prompt = sum(each.prompt_tokens or 0 for each in arrived)
    tokens = sum((each.prompt_tokens or 0) + (each.completion_tokens or 0) for each in ended)
    return ClassFigures(
        name=name,
        offered=len(arrived),
        ok=sum(each.outcome is Outcome.OK for each in arrived),
        goodput=sum(judged) / len(judged) if judged else None,
        ttft_p50=_percentile(ttft, 50),
        ttft_p95=_percentile(ttft, 95),
        tokens_per_second=tokens / window.seconds if window.seconds else 0.0,
        cache_hit_ratio=sum(each.cached_tokens or 0 for each in arrived) / prompt if prompt else None,
    )


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Nearest rank."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None
