"""The change of a share or a quantile, if its 95 % confidence interval excludes 0, in PromQL.

Shares are compared as `vllm-slo compare` does: each has Wilson's interval, the difference Newcombe's hybrid score
interval. All intervals assume independent requests.
"""

from dataclasses import dataclass

from alerts.promql.build import aggregate, call, on, ratio
from alerts.promql.expression import Expression
from exporters.vocabulary.signals import Label

_Z_SQUARED, _Z_SQUARED_OF_TWO = 3.84146, 5.02389
"""The square of the standard score of a 95 % interval, and of two that hold together with 95 %."""


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


def quantile_changed(
    q: float, within: tuple[Expression, Expression], counts: tuple[Expression, Expression]
) -> Expression:
    """A series for each class whose quantile changed with 95 % confidence; the arguments are before and after.

    `within` are requests by class and bucket, `counts` those by class. The shares of requests below a bound between the
    two quantiles are compared, which needs no assumption on the distribution; a change within a bucket is not seen.
    """
    of_class = on(Label.CLASS, left=())
    before, after = (part.binary("/", whole > 0, of_class) for part, whole in zip(within, counts, strict=True))
    pooled = (within[0] + within[1]).binary("/", counts[0] + counts[1], of_class)
    variance = (pooled * (1 - pooled)).binary("*", 1 / counts[0] + 1 / counts[1], of_class)
    changed = call("abs", after - before) > call("sqrt", _Z_SQUARED_OF_TWO * variance)
    is_between = (before - q) * (after - q) <= 0
    return aggregate("group", changed.and_(is_between), by=[Label.CLASS])
