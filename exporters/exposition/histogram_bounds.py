"""Histogram bounds: the declared ones and the thresholds of the SLO file."""

from exporters.signals import DECODE, DURATION, INTER_CHUNK, PREFILL, QUEUE, TPOT, TTFT, TTFT_ANSWER, Signal
from exporters.slos import Measure, SloFile

_MEASURES = {
    TTFT: Measure.TTFT,
    TTFT_ANSWER: Measure.TTFT_ANSWER,
    TPOT: Measure.TPOT,
    INTER_CHUNK: Measure.ITL_P95,
    DURATION: Measure.E2E,
    QUEUE: Measure.QUEUE,
    PREFILL: Measure.PREFILL,
    DECODE: Measure.DECODE,
}


def bounds(signal: Signal, slos: SloFile) -> tuple[float, ...]:
    """Ascending upper bounds without +Inf; thresholds are bounds, so that queries on them are exact."""
    measure = _MEASURES.get(signal)
    thresholds = {slo.threshold for slo in slos.slos if slo.measure is measure and slo.threshold is not None}
    return tuple(sorted({*signal.bounds, *thresholds}))


def gap_bounds(slos: SloFile) -> tuple[float, ...]:
    """Bounds of the inter-chunk histogram, which the relay fills."""
    return bounds(INTER_CHUNK, slos)
