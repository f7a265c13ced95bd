"""What the searches of an experiment for the largest rate have found, from the cells of their probes."""

from collections.abc import Iterator

from compose.experiments.report.estimates import cell
from compose.experiments.report.found_rates import RANKING_NOTE, Probe, found_rates, ranking
from compose.experiments.report.groups import Experiment
from compose.experiments.report.metrics import E2E_P99, ENGINE, GOODPUT, THROUGHPUT, TPOT_P99, TTFT_P99
from compose.experiments.report.tables import Grid
from compose.experiments.setup.rate_judgement import CONFIDENCE

_OF_PROBES = (TTFT_P99, TPOT_P99, E2E_P99, THROUGHPUT, *ENGINE)
_NOTE = (
    f"A probe is met or missed only if the {CONFIDENCE:.0%} interval of every class and SLO says so, otherwise "
    "undecided. A request that the client gave up on counts as bad. The SLOs that limit the rate are those that the "
    "least missed rate misses, the worst first."
)


def searches(experiment: Experiment) -> Iterator[Grid | str]:
    """The largest rate of each configuration, and the probes of its search."""
    found = found_rates(experiment)
    if len(experiment.record.configurations) > 1:
        headings = ["place", "configuration", "largest rate", "result"]
        ranked = [[str(each.place), each.configuration, each.text, each.result] for each in ranking(found)]
        yield Grid("Ranking", headings, ranked, left=(1, 2, 3))
        yield RANKING_NOTE
    rows = [
        [
            each.configuration,
            str(each.repeat),
            each.text,
            ", ".join(f"{tally.slo} of {tally.request_class}" for tally in each.missed) or "-",
            "; ".join(each.reasons) or "-",
        ]
        for each in found
    ]
    headings = ["configuration", "repeat", "largest rate", "limited by", "figures"]
    yield Grid("Largest rate", headings, rows, left=(0, 2, 3, 4))
    yield _NOTE
    probed = [
        [each.configuration, str(each.repeat), *_probe(probe)]
        for each in found
        for _, probe in sorted(each.probes.items())
    ]
    figures = [metric.title for metric in _OF_PROBES]
    headings = ["configuration", "repeat", "requests/s", "requests", "result", "nearest to a miss", "good", *figures]
    yield Grid("Probes", headings, probed, labels=3, left=(0, 4, 5))


def _probe(probe: Probe) -> Iterator[str]:
    (repeat,) = probe.group.repeats
    nearest = probe.verdicts.nearest
    yield from (f"{probe.rate:g}", str(len(repeat.records)), probe.verdicts.attainment)
    yield "-" if nearest is None else f"{nearest.slo} of {nearest.request_class}"
    yield "-" if nearest is None else GOODPUT.unit.text(nearest.good)
    yield from (cell(metric, probe.group) for metric in _OF_PROBES)
