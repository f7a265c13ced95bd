"""Decides whether a cell met every SLO, and what the searches of an experiment have found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporters.text.errors import UsageError
from exporters.vocabulary.slo_file import SloFile
from loadgen.results.record import Record
from loadgen.schedule.scenario import Scenario
from loadgen.search.attainment import Verdicts
from loadgen.search.probes import Demand, Timing, demand, judge, look_times
from loadgen.search.rate_search import Answer, Finding

CONFIDENCE = 0.95
"""Confidence of the decision of each probe, the default of `vllm-slo load find-max`."""


@dataclass(frozen=True, slots=True)
class RateJudgement:
    """The SLOs of a search, and the requests that a decision needs."""

    demand: Demand
    objectives: Mapping[str, float]

    def verdicts(self, records: Sequence[Record], seconds: float) -> Verdicts:
        """The decision of `vllm-slo load find-max` with a single look, on all requests of a cell of this length.

        Later turns of conversations may be judged by SLOs that no first turn has; they count too.
        """
        judged = {
            (record.request_class, slo) for record in records for slo in record.slo
        } | self.demand.objectives.keys()
        objectives = {pair: self.objectives[pair[1]] for pair in sorted(judged)}
        (look,) = look_times(seconds, Timing(seconds, seconds, CONFIDENCE), len(objectives))
        return judge(look, records, objectives, {})

    def check(self, requests: int, turns: float) -> None:
        """Refuse a number of requests of which no probe can be met; arrivals have this number of `turns` on average.

        Raises:
            UsageError: the number is too small.
        """
        least = max(self.demand.events, round(self.demand.requests / turns))
        if requests < least:
            name, slo = self.demand.binding
            raise UsageError(
                f"find_max: {requests} requests cannot show that {slo} of {name} is met, which takes "
                f"{self.demand.events} requests of this class without a miss; set requests to {least} or more"
            )


def judgement(scenario: Scenario, slos: SloFile) -> RateJudgement:
    """The judgement of a scenario by an SLO file.

    Raises:
        UsageError: no SLO judges a class of the scenario.
    """
    demanded = demand(scenario, slos, None, CONFIDENCE)
    if demanded is None:
        raise UsageError(f"find_max: no SLO judges a class of the load {scenario.name}; check the class names")
    return RateJudgement(demanded, {slo.name: slo.objective for slo in slos.slos})


def answer_text(found: Answer) -> str:
    """The largest rate, or what is known of it."""
    match found.finding:
        case Finding.BETWEEN:
            return f"between {found.low:g} and {found.high:g} requests/s"
        case Finding.BEATEN:
            return f"below {found.high:g} requests/s, which another configuration meets"
        case Finding.NONE:
            return f"below the lowest rate: {found.high:g} requests/s is missed"
        case Finding.ABOVE_CAP:
            return f"at or above the highest rate: {found.low:g} requests/s is met"
    met = "no rate is met" if found.low is None else f"{found.low:g} requests/s is met"
    missed = "none is missed" if found.high is None else f"{found.high:g} is missed"
    rates = ", ".join(f"{rate:g}" for rate in found.undecided)
    more = f"more requests are needed to decide {rates}" if rates else "the search has not ended"
    return f"undecided: {met}, {missed}; {more}"
