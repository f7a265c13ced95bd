"""Histogram bounds: the declared ones and the thresholds of the SLO file."""

from exporters.vocabulary.signals import INTER_CHUNK, Signal
from exporters.vocabulary.slo_file import HISTOGRAMS, Latency, SloFile


def bounds(signal: Signal, slos: SloFile) -> tuple[float, ...]:
    """Ascending upper bounds without +Inf; thresholds are bounds, so that queries on them are exact."""
    thresholds = {
        slo.sli.threshold for slo in slos.slos if isinstance(slo.sli, Latency) and HISTOGRAMS[slo.measure] is signal
    }
    return tuple(sorted({*signal.bounds, *thresholds}))


def gap_bounds(slos: SloFile) -> tuple[float, ...]:
    """Bounds of the inter-chunk histogram, which the relay fills."""
    return bounds(INTER_CHUNK, slos)
