"""What the searches of an experiment for the largest rate have found, from the cells of their probes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compose.experiments.report.estimates import cell
from compose.experiments.report.groups import Experiment, Group
from compose.experiments.report.metrics import E2E_P99, ENGINE, GOODPUT, THROUGHPUT, TPOT_P99, TTFT_P99
from compose.experiments.report.tables import Grid
from compose.experiments.setup.rate_judgement import CONFIDENCE, answer_text
from loadgen.search.attainment import Attainment, Tally, Verdicts
from loadgen.search.rate_search import Answer, Limits, answer
from loadgen.search.report import reasons

_OF_PROBES = (TTFT_P99, TPOT_P99, E2E_P99, THROUGHPUT, *ENGINE)
_NOTE = (
    f"A probe is met or missed only if the {CONFIDENCE:.0%} interval of every class and SLO says so, otherwise "
    "undecided. A request that the client gave up on counts as bad. The SLOs that limit the rate are those that the "
    "least missed rate misses, the worst first."
)


@dataclass(frozen=True, slots=True)
class Probe:
    """One valid cell of a search; `group` has only this repeat."""

    rate: float
    group: Group
    verdicts: Verdicts


@dataclass(frozen=True, slots=True)
class FoundRate:
    """A search: its probes by rate, and the answer so far; `stopped` has the reasons of cells without a measurement."""

    configuration: str
    repeat: int
    probes: Mapping[float, Probe]
    answer: Answer
    stopped: Sequence[str]

    @property
    def text(self) -> str:
        return answer_text(self.answer)

    @property
    def missed(self) -> Sequence[Tally]:
        """The SLOs that the least missed rate misses, the worst first: they limit the rate."""
        return [] if self._limit is None else self._limit.verdicts.deciding()

    @property
    def reasons(self) -> Sequence[str]:
        """The figures of what limits the rate, and why a search has stopped."""
        return [*([] if self._limit is None else reasons(self._limit.verdicts, 2)), *self.stopped]

    @property
    def _limit(self) -> Probe | None:
        return None if self.answer.high is None else self.probes[self.answer.high]


def found_rates(experiment: Experiment) -> Iterator[FoundRate]:
    """One for each configuration and repeat."""
    limits = experiment.record.find_max
    if limits is not None:
        for configuration in experiment.record.configurations:
            for repeat in range(1, experiment.record.repeats + 1):
                groups = [group for group in experiment if group.configuration == configuration.name]
                yield _found(experiment, limits, configuration.name, repeat, groups)


def _found(
    experiment: Experiment, limits: Limits, configuration: str, repeat: int, groups: Sequence[Group]
) -> FoundRate:
    probes: dict[float, Probe] = {}
    stopped = [
        f"{each.state}{group.level.text}" for group in groups for each in group.excluded if each.repeat == repeat
    ]
    for group in groups:
        rate = group.level.rate
        for each in group.repeats:
            if each.number == repeat and rate is not None and experiment.judgement is not None:
                seconds = sum(phase.duration for phase in each.run.phases)
                verdicts = experiment.judgement.verdicts(each.records, seconds)
                probes[rate] = Probe(rate, replace(group, repeats=(each,), excluded=()), verdicts)
    results: dict[float, Attainment] = {rate: probe.verdicts.attainment for rate, probe in probes.items()}
    return FoundRate(configuration, repeat, probes, answer(results, limits), stopped)


def searches(experiment: Experiment) -> Iterator[Grid | str]:
    """The largest rate of each configuration, and the probes of its search."""
    found = [*found_rates(experiment)]
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
