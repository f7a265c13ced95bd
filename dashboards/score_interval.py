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

    def to_end(self, direction: str) -> str:
        """From the value to an end of its interval: the lower end if `direction` is 1, the upper one if it is -1."""
        # extrapolated counts may differ by less than one event
        variance = f"clamp_min(({self.part}) * (1 - {self.value}), 0)"
        half = f"sqrt({_Z_SQUARED:g} * ({variance} + {_Z_SQUARED / 4:g}))"
        return f"({half} + {_Z_SQUARED:g} * {direction} * ({self.value} - 0.5)) / (({self.whole}) + {_Z_SQUARED:g})"


def significant_change(before: Share, after: Share) -> str:
    """After minus before; absent if the interval of the difference contains 0.

    Each count is in it as few times as possible, because Prometheus evaluates a repeated selector again.
    """
    change = f"({after.value} - {before.value})"
    # the ends that face the other share
    ends = after.to_end(f"sgn({change})"), before.to_end(f"-sgn({change})")
    distance = " + ".join(f"({end}) ^ 2" for end in ends)
    return f"({change} and abs({change}) > sqrt({distance}))"
