"""The change of a share, if its 95 % confidence interval excludes 0: as `vllm-slo compare` computes it, in PromQL.

Each share has Wilson's interval, the difference Newcombe's hybrid score interval; both assume independent requests.
"""

from dataclasses import dataclass

_Z_SQUARED = 3.841459
"""Of 95 %."""


@dataclass(frozen=True, slots=True)
class Share:
    """The queries of a number of events and of those that have the property; both have the same labels."""

    part: str
    whole: str

    @property
    def value(self) -> str:
        return f"({self.part}) / (({self.whole}) > 0)"

    @property
    def _middle(self) -> str:
        return f"(({self.part}) + {_Z_SQUARED / 2:g}) / (({self.whole}) + {_Z_SQUARED:g})"

    @property
    def _half(self) -> str:
        # extrapolated counts may differ by less than one event
        variance = f"clamp_min(({self.part}) * (1 - {self.value}), 0)"
        return f"sqrt({_Z_SQUARED:g} * ({variance} + {_Z_SQUARED / 4:g})) / (({self.whole}) + {_Z_SQUARED:g})"

    @property
    def below(self) -> str:
        """From the value down to the lower end of its interval."""
        return f"({self.value} - {self._middle} + {self._half})"

    @property
    def above(self) -> str:
        return f"({self._middle} + {self._half} - {self.value})"


def significant_change(before: Share, after: Share) -> str:
    """After minus before; absent if the interval of the difference contains 0."""
    change = f"({after.value} - {before.value})"
    rise, fall = _root(after.below, before.above), _root(after.above, before.below)
    return f"({change} > {rise} or {change} < -1 * {fall})"


def _root(one: str, other: str) -> str:
    return f"sqrt({one} ^ 2 + {other} ^ 2)"
