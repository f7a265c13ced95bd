"""The figures of a window from counters and histograms in Prometheus, without individual requests."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from exporters.analysis.compare.backlog import Backlog, ChangeFailures
from exporters.analysis.estimates import figures
from exporters.analysis.estimates.block_means import block_rate, block_ratio
from exporters.analysis.estimates.counter_blocks import ByClass, increases, levels, total
from exporters.analysis.estimates.estimates import BLOCKS, BucketQuantile, Rate, Share
from exporters.analysis.estimates.figures import Figure, Measurement, Measurements
from exporters.analysis.estimates.windows import Window
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome, Phase, Signal
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import SERVER_FAULT

Counts = Mapping[str, float]
"""Counts by class."""

_OK = f'{signals.REQUESTS.name}{{{Label.OUTCOME}="{Outcome.OK}"}}'
_WITHOUT_RESPONSE = "|".join(outcome for outcome in Outcome if outcome not in {Outcome.OK, Outcome.CLIENT_ERROR})
"""Outcomes of requests that should have had a complete response: not those of empty and of invalid ones."""


class PrometheusFigures:
    """Figures from counters and histograms; a query that fails raises as the server does."""

    def __init__(self, prometheus: Prometheus, spec: SloFile) -> None:
        self._prometheus = prometheus
        self._spec = spec

    def measurements(self, window: Window, lead: float) -> Measurements:
        ended = self._increase(signals.REQUESTS, window)
        client_errors = self._increase(signals.REQUESTS, window, f'{{{Label.OUTCOME}="{Outcome.CLIENT_ERROR}"}}')
        judged, good = (self._increase(each, window) for each in (signals.GOODPUT_EVENTS, signals.GOODPUT_REQUESTS))
        events, bad = (
            self._increase_by(Label.SLO, each.name, window) for each in (signals.SLO_EVENTS, signals.SLO_BAD)
        )
        without_token, not_ok = (
            self._increase(each, window, f'{{{Label.OUTCOME}=~"{_WITHOUT_RESPONSE}"}}')
            for each in (signals.WITHOUT_FIRST_TOKEN, signals.REQUESTS)
        )
        buckets = [
            (figures.TTFT, self._increase_by("le", signals.TTFT.bucket, window), without_token),
            (figures.E2E, self._increase_by("le", signals.DURATION.bucket, window), not_ok),
            (figures.TPOT, self._increase_by("le", signals.TPOT.bucket, window), {}),
            (figures.QUEUE, self._increase_by("le", signals.QUEUE.bucket, window), {}),
        ]
        arrivals, completed = self._arrivals(window), increases(self._prometheus, _OK, window)
        output, prompt, cached = (
            increases(self._prometheus, each.name, window)
            for each in (signals.COMPLETION_TOKENS, signals.PROMPT_TOKENS, signals.CACHED_TOKENS)
        )
        nothing = [0.0] * BLOCKS
        by_class: dict[str, Mapping[Figure, Measurement]] = {
            figures.ALL_CLASSES: {
                figures.OFFERED: _offered(sum(total(arrivals)), window),
                figures.BACKLOG_GROWTH: self.backlog(window).measurement,
                figures.COMPLETED: _completed(total(completed), total(arrivals)),
                **self.engine_work(window),
            }
        }
        for name in self._spec.in_order(ended):
            arrived = arrivals.get(name, nothing)
            by_class[name] = {
                figures.OFFERED: _offered(sum(arrived), window),
                figures.COMPLETED: _completed(completed.get(name, nothing), arrived),
                **{
                    figures.attainment(slo.name): _share(count - bad.get(name, {}).get(slo.name, 0.0), count)
                    for slo in self._spec.slos
                    if (count := events.get(name, {}).get(slo.name)) is not None
                },
                figures.GOODPUT: _share(good.get(name, 0.0), judged.get(name, 0.0)),
                **{
                    figure: _quantile(by_name.get(name, {}), never.get(name, 0.0), figure.percent or 0)
                    for percentiles, by_name, never in buckets
                    for figure in percentiles
                },
                figures.CLIENT_ERRORS: _share(client_errors.get(name, 0.0), ended[name]),
                figures.OUTPUT_TOKENS: _tokens(output.get(name, nothing), window, ended[name]),
                figures.CACHE_HITS: _hits(cached.get(name, nothing), prompt.get(name, nothing), ended[name]),
            }
        return by_class

    def engine_work(self, window: Window) -> dict[Figure, Measurement]:
        """Throughput and prefix cache by the counters of all engines, for all requests."""
        output, prompt, hits = (
            self._engine(each, window)
            for each in (signals.ENGINE_GENERATION_TOKENS, signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_CACHE_HITS)
        )
        computed = [max(whole - hit, 0.0) for whole, hit in zip(prompt, hits, strict=True)]
        return {
            figures.OUTPUT_TOKENS: _tokens(output, window, sum(output)),
            figures.PROMPT_TOKENS: _tokens(computed, window, sum(prompt)),
            figures.CACHED_TOKENS: _tokens(hits, window, sum(hits)),
            figures.CACHE_HITS: _hits(hits, prompt, sum(prompt)),
            figures.PREEMPTIONS: self.preemptions(window),
        }

    def preemptions(self, window: Window) -> Measurement:
        amounts = self._engine(signals.ENGINE_PREEMPTIONS, window)
        return Measurement(round(sum(amounts)), block_rate(window, amounts))

    def _engine(self, counter: Signal, window: Window) -> list[float]:
        """The increase of a counter of all engines in each block."""
        return total(increases(self._prometheus, counter.name, window))

    def backlog(self, window: Window) -> Backlog:
        waiting = levels(self._prometheus, f'{signals.IN_FLIGHT.name}{{{Label.PHASE}="{Phase.WAITING}"}}', window)
        return Backlog(window, total(waiting, BLOCKS + 1), sum(total(self._arrivals(window))))

    def failures(self, change: Window) -> ChangeFailures:
        """The requests that failed between the two windows, by the server's fault."""
        failed = self._prometheus.query(
            f'sum(increase({signals.REQUESTS.name}{{{Label.OUTCOME}=~"{"|".join(sorted(SERVER_FAULT))}"}}'
            f"[{_seconds(change)}]))",
            change.end,
        )
        in_flight = self._prometheus.query(f"sum({signals.IN_FLIGHT.name})", change.start)
        counts = [round(sum(each.value for each in found)) for found in (failed, in_flight)]
        return ChangeFailures(counts[0], counts[1], None)

    def _arrivals(self, window: Window) -> ByClass:
        """Requests that ended, and the growth of the open ones."""
        ended, open_ = (
            increases(self._prometheus, signals.REQUESTS.name, window),
            levels(self._prometheus, signals.IN_FLIGHT.name, window),
        )
        idle = [0.0] * (BLOCKS + 1)
        return {
            name: [
                max(count + late - early, 0.0)
                for count, (early, late) in zip(counts, pairwise(open_.get(name, idle)), strict=True)
            ]
            for name, counts in ended.items()
        }

    def _increase(self, counter: Signal, window: Window, where: str = "") -> Counts:
        growth = f"sum by (class) (increase({counter.name}{where}[{_seconds(window)}]))"
        return self._prometheus.query_by(Label.CLASS, growth, window.end)

    def _increase_by(self, label: str, counter: str, window: Window) -> Mapping[str, Counts]:
        """The increase of a counter by class, then by `label`."""
        groups: dict[str, dict[str, float]] = defaultdict(dict)
        samples = self._prometheus.query(
            f"sum by (class, {label}) (increase({counter}[{_seconds(window)}]))", window.end
        )
        for sample in samples:
            if Label.CLASS in sample.labels and label in sample.labels:
                groups[sample.labels[Label.CLASS]][sample.labels[label]] = sample.value
        return groups


def _seconds(window: Window) -> str:
    return f"{max(1, round(window.seconds))}s"


def _share(part: float, whole: float) -> Measurement:
    if whole <= 0:
        return Measurement(0, None)
    return Measurement(round(whole), Share(min(max(part / whole, 0.0), 1.0), whole))


def _offered(arrivals: float, window: Window) -> Measurement:
    return Measurement(round(arrivals), Rate(arrivals / window.seconds, arrivals, 1 / window.seconds))


def _completed(ok: Sequence[float], arrived: Sequence[float]) -> Measurement:
    return Measurement(round(sum(arrived)), block_ratio(ok, arrived))


def _tokens(amounts: Sequence[float], window: Window, events: float) -> Measurement:
    return Measurement(round(events), block_rate(window, amounts))


def _hits(hits: Sequence[float], prompt: Sequence[float], events: float) -> Measurement:
    return Measurement(round(events) if any(prompt) else 0, block_ratio(hits, prompt))


def _quantile(buckets: Counts, never: float, percent: int) -> Measurement:
    """A quantile of the times of a histogram and of `never` requests without a time, which are slower than any.

    `increase` extrapolates each bucket separately, so the counts may decrease; the maximum so far corrects that.
    """
    bounds = sorted({*buckets, "+Inf"}, key=float)
    counts: list[float] = []
    for bound in bounds:
        counts.append(max(buckets.get(bound, 0.0), counts[-1] if counts else 0.0))
    counts[-1] += never
    if counts[-1] <= 0 or len(bounds) == 1:
        return Measurement(0, None)
    return Measurement(round(counts[-1]), BucketQuantile([float(bound) for bound in bounds], counts, percent))
