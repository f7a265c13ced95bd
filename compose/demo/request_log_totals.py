"""Aggregates the demo's request log over a window, by class and in total."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporters.analysis.estimates.windows import Window
from exporters.requestlog.entry import LogEntry
from exporters.requestlog.reader import LogReader
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import Outcome
from exporters.vocabulary.verdicts import goodput, nearest_rank

TOTAL = "all"


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """One class over one window.

    Tokens per second count requests that ended in the window; all other figures count requests that arrived in it.
    `prompt_tokens_per_second` excludes cached tokens. `ttft` in seconds is infinite for streams that ended without a
    first token.
    """

    name: str
    offered: int
    ok: int
    goodput: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    output_tokens_per_second: float
    prompt_tokens_per_second: float
    cache_hit_ratio: float | None


def read(path: Path) -> list[LogEntry]:
    """All entries of a request log.

    Raises:
        UsageError: the log cannot be read, or a line is invalid.
    """
    reader = LogReader([path])
    entries = list(reader)
    for name, bad in reader.bad_lines.items():
        if bad.count:
            raise UsageError(f"{name}: not a request log: {bad.first}")
    return entries


def figures(entries: Iterable[LogEntry], classes: Sequence[str], window: Window) -> tuple[ClassFigures, ...]:
    """The figures of each class, then of all classes together."""
    every = list(entries)
    return (
        *(_figures(name, [entry for entry in every if entry.request_class == name], window) for name in classes),
        _figures(TOTAL, every, window),
    )


def _figures(name: str, entries: Sequence[LogEntry], window: Window) -> ClassFigures:
    arrived = [entry for entry in entries if window.contains(entry.arrived)]
    ended = [entry for entry in entries if window.contains(entry.ended)]
    judged = [good for entry in arrived if (good := goodput(entry.slo.values())) is not None]
    ttft = sorted(wait for entry in arrived if (wait := entry.first_token_wait) is not None)
    prompt = sum(entry.prompt_tokens or 0 for entry in arrived)
    output = sum(entry.completion_tokens or 0 for entry in ended)
    computed = sum((entry.prompt_tokens or 0) - (entry.cached_tokens or 0) for entry in ended)
    return ClassFigures(
        name=name,
        offered=len(arrived),
        ok=sum(entry.outcome is Outcome.OK for entry in arrived),
        goodput=sum(judged) / len(judged) if judged else None,
        ttft_p50=nearest_rank(ttft, 50) if ttft else None,
        ttft_p95=nearest_rank(ttft, 95) if ttft else None,
        output_tokens_per_second=output / window.seconds if window.seconds else 0.0,
        prompt_tokens_per_second=computed / window.seconds if window.seconds else 0.0,
        cache_hit_ratio=sum(entry.cached_tokens or 0 for entry in arrived) / prompt if prompt else None,
    )
