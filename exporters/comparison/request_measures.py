"""From the requests of one class to its figures in one window; each counts at the moment when it was known."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporters.comparison.comparison_windows import Window
from exporters.comparison.measures import (
    CACHE_HITS,
    CLIENT_ERRORS,
    GOODPUT,
    OFFERED,
    QUEUE,
    TOKENS,
    TPOT,
    TTFT,
    Figure,
    Measured,
    attainment,
)
from exporters.comparison.sampling import quantiles, rate, share
from exporters.requestlog.reader import Line
from exporters.signals import Outcome, Verdict
from exporters.slos import Measure, Slo, SloFile

Judged = tuple[float, bool]
"""When a verdict fell, and whether it was good."""


def measured(lines: Sequence[Line], window: Window, lead: float, spec: SloFile) -> Mapping[Figure, Measured]:
    """Of what became known in the window about requests that arrived at most `lead` seconds before it.

    To take only requests that begin and end inside would leave hardly any of an overload, and those the quick ones.
    """
    fresh = [line for line in lines if line.arrived >= window.start - lead]
    ended = [line for line in fresh if window.holds(line.ended)]
    slos = {slo.name: slo for slo in spec.slos}
    names = {name for line in lines for name in line.slo}
    verdicts = [(line, _verdicts(line, slos, spec.first_token_timeout)) for line in fresh]

    def times(figures: tuple[Figure, ...], value: Callable[[Line], float | None]) -> Mapping[Figure, Measured]:
        return quantiles(window, figures, [(line.ended, got) for line in ended if (got := value(line)) is not None])

    def kept(judged: Iterable[Judged]) -> Measured:
        return share(window, [(at, float(good), 1.0) for at, good in judged if window.holds(at)])

    return {
        OFFERED: rate(window, [(line.arrived, 1.0) for line in lines if window.holds(line.arrived)]),
        **{
            attainment(name): kept(found[name] for _, found in verdicts if name in found)
            for name in [*(name for name in slos if name in names), *sorted(names - slos.keys())]
        },
        GOODPUT: kept(_all(line, found.values()) for line, found in verdicts if found),
        **quantiles(window, TTFT, _waits(fresh, window)),
        **times(TPOT, lambda line: line.tpot),
        **times(QUEUE, lambda line: line.queue),
        CLIENT_ERRORS: kept((line.ended, line.outcome is Outcome.CLIENT_ERROR) for line in ended),
        TOKENS: rate(window, [(line.ended, float(line.tokens)) for line in ended]),
        CACHE_HITS: share(
            window,
            [
                (line.ended, float(min(line.cached_tokens, line.prompt_tokens)), float(line.prompt_tokens))
                for line in ended
                if line.cached_tokens is not None and line.prompt_tokens
            ],
        ),
    }


def _verdicts(line: Line, slos: Mapping[str, Slo], first_token_timeout: float) -> dict[str, Judged]:
    """The events among the verdicts: what hangs has missed its deadline long before it ends."""
    return {
        name: (_fell(line, slos.get(name), verdict, first_token_timeout), verdict is Verdict.GOOD)
        for name, verdict in line.slo.items()
        if verdict is not Verdict.ABANDONED
    }


def _fell(line: Line, slo: Slo | None, verdict: Verdict, first_token_timeout: float) -> float:
    """As `exporters.verdicts.Judge` has it, as far as the log can tell; else the end."""
    measure = slo.measure if slo else None
    in_time = math.inf
    if verdict is Verdict.GOOD:
        in_time = line.ttft if measure is Measure.TTFT and line.ttft is not None else math.inf
    elif (
        slo is not None
        and slo.threshold is not None
        and (measure in {Measure.TTFT, Measure.E2E} or (not line.stream and measure in {Measure.TPOT, Measure.ITL_P95}))
    ):
        in_time = slo.threshold
    elif line.ttft is None and measure in {Measure.TPOT, Measure.ITL_P95, Measure.DECODE, Measure.AVAILABILITY}:
        in_time = first_token_timeout
    return min(line.arrived + in_time, line.ended)


def _all(line: Line, judged: Iterable[Judged]) -> Judged:
    """Goodput: lost with the first bad verdict, won when all are in."""
    bad = [at for at, good in judged if not good]
    return (min(bad), False) if bad else (line.ended, True)


def _waits(lines: Iterable[Line], window: Window) -> list[tuple[float, float]]:
    """When a wait for a first token was over, by the token or by the request's end, and how long it was."""
    known = ((line, wait) for line in lines if (wait := line.wait) is not None)
    return [(at, wait) for line, wait in known if window.holds(at := min(line.arrived + wait, line.ended))]
