"""The change of a share, if its 95 % confidence interval excludes 0: as `vllm-slo compare` computes it, in PromQL.

Each share has Wilson's interval, the difference Newcombe's hybrid score interval; both assume independent requests.
"""

from dataclasses import dataclass

from alerts.promql.build import call, ratio
from alerts.promql.expression import Expression

_Z_SQUARED = 3.84146
"""The square of the standard score of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Share:
    """The queries of a number of events and of those that have the property; both have the same labels."""

    part: Expression
    whole: Expression

    @property
    def value(self) -> Expression:
        return ratio(self.part, self.whole)

    def to_end(self, direction: Expression) -> Expression:
        """Distance from the value to an end of its interval: the lower one if `direction` is 1, the upper one if -1."""
        # extrapolated counts may differ by less than one event
        variance = call("clamp_min", self.part * (1 - self.value), 0)
        half = call("sqrt", _Z_SQUARED * (variance + _Z_SQUARED / 4))
        return (half + _Z_SQUARED * direction * (self.value - 0.5)) / (self.whole + _Z_SQUARED)


def significant_change(before: Share, after: Share) -> Expression:
    """The share after minus the one before; absent if the interval of the difference contains 0.

    Each count is in it as few times as possible, because Prometheus evaluates a repeated selector again.
    """
    change = after.value - before.value
    # the ends that face the other share
    ends = after.to_end(call("sgn", change)), before.to_end(-call("sgn", change))
    distance = ends[0].binary("^", 2) + ends[1].binary("^", 2)
    return change.and_(call("abs", change) > call("sqrt", distance))
