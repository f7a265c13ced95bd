"""Histogram bounds: the declared ones, and every threshold of the SLO file that falls on that histogram."""

from exporters.signals import DECODE, DURATION, INTER_CHUNK, PREFILL, QUEUE, TPOT, TTFT, Signal
from exporters.slos import Measure, SloFile

_JUDGED_ON = {
    TTFT: Measure.TTFT,
    TPOT: Measure.TPOT,
    INTER_CHUNK: Measure.ITL_P95,
    DURATION: Measure.E2E,
    QUEUE: Measure.QUEUE,
    PREFILL: Measure.PREFILL,
    DECODE: Measure.DECODE,
}


def bounds(signal: Signal, slos: SloFile) -> tuple[float, ...]:
    """Upper bounds without +Inf, rising; thresholds are among them, so that a panel can count on either side."""
    measure = _JUDGED_ON.get(signal)
    thresholds = {slo.threshold for slo in slos.slos if slo.measure is measure and slo.threshold is not None}
    return tuple(sorted({*signal.bounds, *thresholds}))


def gap_bounds(slos: SloFile) -> tuple[float, ...]:
    """Bounds of the inter-chunk histogram, which the relay fills by itself."""
    return bounds(INTER_CHUNK, slos)
