"""The answers of the searches of an experiment, from the cells of their probes, and the ranking by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compose.experiments.report.groups import Experiment, Group
from compose.experiments.setup.rate_judgement import answer_text
from loadgen.search.attainment import Attainment, Tally, Verdicts
from loadgen.search.rate_search import Answer, Limits, answer
from loadgen.search.report import reasons


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
    def results(self) -> Mapping[float, Attainment]:
        return {rate: probe.verdicts.attainment for rate, probe in self.probes.items()}

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


def found_rates(experiment: Experiment) -> Sequence[FoundRate]:
    """One for each configuration and repeat."""
    limits = experiment.record.find_max
    if limits is None:
        return []
    found = [
        _found(experiment, limits, configuration.name, repeat)
        for configuration in experiment.record.configurations
        for repeat in range(1, experiment.record.repeats + 1)
    ]
    best: dict[int, float] = {}
    for each in found:
        best[each.repeat] = max(best.get(each.repeat, 0.0), each.answer.low or 0.0)
    return [replace(each, answer=answer(each.results, limits, best[each.repeat])) for each in found]


def _found(experiment: Experiment, limits: Limits, configuration: str, repeat: int) -> FoundRate:
    probes: dict[float, Probe] = {}
    groups = [group for group in experiment if group.configuration == configuration]
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
    return FoundRate(configuration, repeat, probes, answer({}, limits), stopped)


RANKING_NOTE = (
    "The interval of a configuration is from the least rate that a repeat met to the largest that a repeat missed. A "
    "configuration is better than another if, in each repeat, it met a rate that the other missed: all of them had the "
    "same requests. undecided: no configuration is better, and some are not worse."
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """`place` is 1 without a `better` configuration; `undecided` are those that are neither better nor worse."""

    place: int
    configuration: str
    low: float | None
    high: float | None
    better: Sequence[str]
    undecided: Sequence[str]

    @property
    def text(self) -> str:
        match self.low, self.high:
            case None, None:
                return "not known"
            case None, high:
                return f"below {high:g}/s"
            case low, None:
                return f"{low:g}/s or more"
            case low, high:
                return f"{low:g} to {high:g}/s"

    @property
    def result(self) -> str:
        if self.better:
            return f"worse than {self.better[0]}"
        return "undecided" if self.undecided else "best"


def ranking(found: Sequence[FoundRate]) -> Sequence[Ranked]:
    """The configurations, those with the fewest better ones first."""
    searches: dict[str, dict[int, FoundRate]] = {}
    for each in found:
        searches.setdefault(each.configuration, {})[each.repeat] = each
    by_rate = sorted(searches, key=lambda name: -sum(each.answer.low or 0.0 for each in searches[name].values()))
    ranked = []
    for name, repeats in searches.items():
        better = [other for other in by_rate if _better(searches[other], repeats)]
        overlapping = [
            other for other in by_rate if other not in (name, *better) and not _better(repeats, searches[other])
        ]
        lows = [each.answer.low for each in repeats.values() if each.answer.low is not None]
        highs = [each.answer.high for each in repeats.values() if each.answer.high is not None]
        low = min(lows) if len(lows) == len(repeats) else None
        high = max(highs) if len(highs) == len(repeats) else None
        ranked.append(Ranked(len(better) + 1, name, low, high, better, overlapping))
    return sorted(ranked, key=lambda each: (each.place, by_rate.index(each.configuration)))


def _better(one: Mapping[int, FoundRate], other: Mapping[int, FoundRate]) -> bool:
    """Whether one met, in each repeat, a rate that the other missed."""

    def met(repeat: int) -> bool:
        low, high = one[repeat].answer.low, other[repeat].answer.high
        return low is not None and high is not None and low >= high

    return all(map(met, one))
