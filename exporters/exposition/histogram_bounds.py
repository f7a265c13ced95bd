"""Histogram bounds: the declared ones and the thresholds of the SLO file."""

from exporters.signals import INTER_CHUNK, Signal
from exporters.slos import HISTOGRAMS, SloFile


def bounds(signal: Signal, slos: SloFile) -> tuple[float, ...]:
    """Ascending upper bounds without +Inf; thresholds are bounds, so that queries on them are exact."""
    thresholds = {
        slo.threshold for slo in slos.slos if HISTOGRAMS.get(slo.measure) is signal and slo.threshold is not None
    }
    return tuple(sorted({*signal.bounds, *thresholds}))


def gap_bounds(slos: SloFile) -> tuple[float, ...]:
    """Bounds of the inter-chunk histogram, which the relay fills."""
    return bounds(INTER_CHUNK, slos)
