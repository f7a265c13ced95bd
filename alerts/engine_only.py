"""Maps SLOs to the histograms of vLLM for rules without a sidecar: supported SLOs, bounds and limitations."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from exporters.engines.vllm_buckets import NEWEST, OLDEST, Histogram, first_with, histogram, order
from exporters.text.errors import UsageError
from exporters.text.units import number
from exporters.vocabulary import signals
from exporters.vocabulary.slo_file import Latency, Measure, RequestClass, Slo, SloFile, Source, Tenants

ALL_REQUESTS = "all"
"""The class of all requests, as vLLM does not distinguish classes."""

_HISTOGRAM_SIGNALS = {
    Measure.TTFT: signals.ENGINE_TTFT,
    Measure.TPOT: signals.ENGINE_TPOT,
    Measure.E2E: signals.ENGINE_DURATION,
    Measure.QUEUE: signals.ENGINE_QUEUE,
    Measure.PREFILL: signals.ENGINE_PREFILL,
    Measure.DECODE: signals.ENGINE_DECODE,
}

_UNSUPPORTED = {
    Measure.TTFT_ANSWER: "vLLM does not distinguish reasoning from the answer in its histograms, so ttft_answer is "
    "left out; use ttft, or run the sidecar",
    Measure.ITL_P95: "vLLM counts token gaps of all requests together, so itl_p95 is left out; use tpot, which it "
    "counts per request",
    Measure.AVAILABILITY: "vLLM counts only requests that finish, so an outage would not lower availability, and it is "
    "left out; only the sidecar measures requests that are aborted, rejected or never answered",
    Measure.VALID_OUTPUT: "vLLM does not check its output, so valid_output is left out; only the sidecar checks it",
}

_JOINT = "if g1 of N requests meet one SLO and g2 another, max(0, g1 + g2 - N) to min(g1, g2) meet both"

CAVEAT = (
    "vLLM does not count requests that are rejected, aborted or never answered, except for first tokens sent before. "
    f"vLLM does not count joint goodput either: {_JOINT}."
)


@dataclass(frozen=True, slots=True)
class SupportedSlo:
    """An SLO that is counted at a bound of a vLLM histogram."""

    slo: Slo
    histogram: Histogram
    bound: float
    threshold: float
    """The threshold in the SLO file."""

    @property
    def effective_slo(self) -> Slo:
        """The SLO that the rules use: all requests, with the bound as its threshold."""
        return replace(self.slo, classes=(ALL_REQUESTS,), sli=Latency(self.slo.measure, self.bound))

    @property
    def is_adjusted(self) -> bool:
        return self.bound != self.threshold

    @property
    def note(self) -> str:
        """The bound that replaces the threshold, and the nearest bounds."""
        if not self.is_adjusted:
            return f"{_seconds(self.threshold)} is a bound of {self.histogram.name}, so it is counted exactly"
        below = max(bound for bound in self.histogram.bounds if bound < self.threshold)
        above = min(bound for bound in self.histogram.bounds if bound > self.threshold)
        return (
            f"{_seconds(self.threshold)} is not a bound of {self.histogram.name}, whose nearest are {_seconds(below)} "
            f"and {_seconds(above)}; counted at {_seconds(self.bound)}"
        )


@dataclass(frozen=True, slots=True)
class UnsupportedSlo:
    """An SLO without rules: the key that causes this, and the reason."""

    slo: Slo
    key: str
    note: str


def evaluate_slos(spec: SloFile) -> tuple[SupportedSlo | UnsupportedSlo, ...]:
    """Whether and how vLLM counts each SLO."""
    return tuple(_evaluate(spec, slo) for slo in spec.slos)


def supported_slos(spec: SloFile) -> tuple[SupportedSlo, ...]:
    return tuple(each for each in evaluate_slos(spec) if isinstance(each, SupportedSlo))


def unsupported_reason(spec: SloFile) -> tuple[str, str] | None:
    """The key and the reason if no rules are possible."""
    if order(version(spec)) < order(OLDEST):
        return (
            "engine",
            f"the bounds of vLLM {version(spec)} are not known; the oldest known release is {OLDEST}",
        )
    if not supported_slos(spec):
        return "slos", "vLLM alone counts none of these; add an SLO on ttft, tpot or e2e, or run the sidecar"
    return None


def effective_spec(spec: SloFile) -> SloFile:
    """The file as the rules use it: without a sidecar, one class, no tenants and thresholds at bounds.

    Raises:
        UsageError: vLLM can count none of its SLOs.
    """
    if spec.source is Source.SIDECAR:
        return spec
    if problem := unsupported_reason(spec):
        raise UsageError(": ".join(problem))
    return replace(
        spec,
        classes=(RequestClass(ALL_REQUESTS, None, None),),
        slos=tuple(each.effective_slo for each in supported_slos(spec)),
        tenants=Tenants(spec.tenants.header, ()),
        alerting=replace(spec.alerting, per_tenant=False),
    )


def version(spec: SloFile) -> str:
    return spec.engine.version or NEWEST


def remarks(spec: SloFile) -> Iterator[str]:
    """The comments at the head of the rule file."""
    yield ""
    yield f"No sidecar: counted from the histograms of vLLM {version(spec)}, scraped as job {spec.engine.job}."
    yield from (f"- {each.slo.name}: {each.note}." for each in evaluate_slos(spec))
    yield "Limitations of the counts of vLLM:"
    yield f'- No classes or tenants: each SLO counts all requests of a model, also unary, as class="{ALL_REQUESTS}".'
    yield (
        "- Requests that are rejected, aborted or never answered are not counted and burn no budget, except for first "
        "tokens sent before. In a total outage, LLMEngineDown and LLMEngineWedged page, and no SLO does."
    )
    yield (
        f"- Only bounds of joint goodput: {_JOINT}. The bounds are recorded as shares of N: "
        f"{signals.GOODPUT_AT_LEAST.name} is 1 minus the sum of all error ratios, {signals.GOODPUT_AT_MOST.name} is 1 "
        "minus the largest."
    )
    yield "- No alerts on rejections, client errors, lost traffic or throughput without goodput."


def snap(threshold: float, bounds: tuple[float, ...]) -> float | None:
    """The nearest bound, the lower of two equally near ones; None outside the range of the bounds."""
    if not bounds[0] <= threshold <= bounds[-1]:
        return None
    return min(bounds, key=lambda bound: (round(abs(bound - threshold), 9), bound))


def _evaluate(spec: SloFile, slo: Slo) -> SupportedSlo | UnsupportedSlo:
    if not isinstance(slo.sli, Latency) or slo.measure not in _HISTOGRAM_SIGNALS:
        return UnsupportedSlo(slo, "signal", _UNSUPPORTED[slo.measure])
    threshold = slo.sli.threshold
    signal = _HISTOGRAM_SIGNALS[slo.measure]
    family = histogram(signal, version(spec))
    if family is None:
        return UnsupportedSlo(
            slo,
            "signal",
            f"vLLM {version(spec)} has no histogram of {slo.measure} per request, so the SLO is left out; "
            f"the first release with one is {first_with(signal)}",
        )
    bound = snap(threshold, family.bounds)
    if bound is None:
        below = threshold < family.bounds[0]
        return UnsupportedSlo(
            slo,
            "threshold",
            f"{_seconds(threshold)} is {'below' if below else 'above'} every bound of {family.name}, so the SLO is "
            f"left out; the nearest bound is {_seconds(family.bounds[0 if below else -1])}",
        )
    if (other := _weaker_objective(spec, slo)) is not None:
        return UnsupportedSlo(
            slo,
            "classes",
            f"vLLM cannot distinguish its requests from those of {other.name!r}, whose objective is weaker, so it is "
            "left out; use one objective for all classes, or run the sidecar",
        )
    return SupportedSlo(slo, family, bound, threshold)


def _weaker_objective(spec: SloFile, slo: Slo) -> Slo | None:
    """An SLO on the same signal with a weaker objective for a class that `slo` does not judge.

    A request that misses the weaker objective is bad for every class. The stronger one would misjudge the others.
    """

    def strictness(each: Slo) -> tuple[float, float]:
        return each.sli.threshold if isinstance(each.sli, Latency) else 0.0, -each.objective

    return next(
        (
            other
            for other in spec.slos
            if other.measure is slo.measure
            and {*other.classes} - {*slo.classes}
            and strictness(other) > strictness(slo)
        ),
        None,
    )


def _seconds(value: float) -> str:
    return f"{number(value)}s"
