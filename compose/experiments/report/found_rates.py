"""The answers of the searches of an experiment, from the cells of their probes."""

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
        _found(
            experiment,
            limits,
            configuration.name,
            repeat,
            [group for group in experiment if group.configuration == configuration.name],
        )
        for configuration in experiment.record.configurations
        for repeat in range(1, experiment.record.repeats + 1)
    ]
    best: dict[int, float] = {}
    for each in found:
        best[each.repeat] = max(best.get(each.repeat, 0.0), each.answer.low or 0.0)
    return [replace(each, answer=answer(each.results, limits, best[each.repeat])) for each in found]


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
    return FoundRate(configuration, repeat, probes, answer({}, limits), stopped)
