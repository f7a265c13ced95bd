"""Ranks configurations by their largest rates; those whose intervals overlap share a place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compose.experiments.report.found_rates import FoundRate

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
        lows = [each.answer.low for each in repeats.values()]
        highs = [each.answer.high for each in repeats.values()]
        known_lows, known_highs = ([rate for rate in rates if rate is not None] for rates in (lows, highs))
        low = min(known_lows) if len(known_lows) == len(lows) else None
        high = max(known_highs) if len(known_highs) == len(highs) else None
        ranked.append(Ranked(len(better) + 1, name, low, high, better, overlapping))
    return sorted(ranked, key=lambda each: (each.place, by_rate.index(each.configuration)))


def _better(one: Mapping[int, FoundRate], other: Mapping[int, FoundRate]) -> bool:
    """Whether one met, in each repeat, a rate that the other missed."""

    def met(repeat: int) -> bool:
        low, high = one[repeat].answer.low, other[repeat].answer.high
        return low is not None and high is not None and low >= high

    return all(map(met, one))
