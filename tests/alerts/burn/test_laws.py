"""The page against an independent reference, for any objective and any history of errors."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporters.vocabulary.slo_file import SloFile, loads
from tests.alerts.firing import burning, firing
from tests.support.promtool import ROOT, Case, Pace, Promtool

SHIPPED = (ROOT / "alerts/slos.yaml").read_text()
PAGE = firing("LLMErrorBudgetBurn", "model", severity="page")
FAST = burning(loads(SHIPPED), "fast-page", "model")
PUBLISHED = {99.9: 14.4, 95.0: 14.4, 90.0: 9.0, 80.0: 4.5}
"""The factor of the fast page: 14.4, or the burn rate of 90 % bad events if 14.4 is unreachable."""


def spec_with_objective(percent: float) -> SloFile:
    return loads(SHIPPED.replace("objective: 95%", f"objective: {percent}%", 1))


@pytest.mark.parametrize("percent", PUBLISHED)
def test_every_objective_has_a_page_that_fires_above_its_rate_not_below_and_ends(
    promtool: Promtool, percent: float
) -> None:
    pace = Pace(spec_with_objective(percent))
    limit = PUBLISHED[percent] * (1 - percent / 100)
    after = (4, 10_000, 0.0)
    series = {
        **pace.slo_events((14, 10_000, 1), after, model="outage"),
        **pace.slo_events((14, 10_000, round(1.03 * limit, 6)), after, model="above"),
        **pace.slo_events((14, 10_000, round(0.97 * limit, 6)), after, model="below"),
        **pace.slo_events((14, 10_000, round(1 - percent / 100, 6)), after, model="at the objective"),
    }
    case = Case(pace.spec, series, pace.step)
    both = {'{model="outage"}': 1.0, '{model="above"}': 1.0}
    case.expect(pace.seconds(14), FAST, both).expect(pace.seconds(14), f"{PAGE} and on (model) ({FAST})", both)
    promtool.test([case.expect(pace.seconds(17), FAST, {})])


@dataclass(frozen=True, slots=True)
class History:
    """Events and bad events of each step."""

    events: tuple[int, ...]
    bad: tuple[int, ...]

    def over(self, factor: float, budget: float, end: int, steps: int) -> float:
        """The burn rate of the last `steps` as a multiple of the factor, without PromQL."""
        events, bad = sum(self.events[max(end - steps, 0) : end]), sum(self.bad[max(end - steps, 0) : end])
        return bad / events / budget / factor if events else 0.0

    def pages(self, factor: float, budget: float, end: int) -> bool | None:
        """Whether both windows of the fast page exceed the factor; None where a window is too close to the factor."""
        long, short = (self.over(factor, budget, end, steps) for steps in (12, 1))
        bad, events = sum(self.bad[max(end - 12, 0) : end]), sum(self.events[max(end - 12, 0) : end])
        if any(0.9 < each < 1.1 for each in (long, short)) or 8 <= bad <= 12 or 45 <= events <= 55:
            return None
        return long > 1 and short > 1 and bad >= 10 and events >= 50


def random_history(seed: int, length: int) -> History:
    """Random runs of quiet or busy, good or bad steps."""
    random = Random(seed)  # noqa: S311 - test data, no secret
    events: list[int] = []
    bad: list[int] = []
    while len(events) < length:
        busy, share = random.choice([0, 1, 20, 400]), random.choice([0, 0, 0.02, 0.3, 0.8, 0.95, 1])
        for _ in range(random.randint(1, 12)):
            # 20 scrapes a step, each with a whole number.
            events.append(20 * busy)
            bad.append(20 * round(busy * share))
    return History(tuple(events[:length]), tuple(bad[:length]))


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), percent=st.sampled_from(sorted(PUBLISHED)))
def test_the_page_fires_exactly_when_both_windows_exceed_the_factor(
    programs: tuple[Path, ...], tmp_path: Path, seed: int, percent: float
) -> None:
    """Ten histories at a time. `keep_firing_for` is one step, so the page also fires in the step after."""
    pace, length = Pace(spec_with_objective(percent)), 60
    factor, budget = PUBLISHED[percent], 1 - percent / 100
    histories = {f"m{n}": random_history(seed + n, length) for n in range(10)}
    series: dict[str, str] = {}
    for model, history in histories.items():
        series |= pace.slo_event_runs(
            [(each / 20, 20) for each in history.events], [(each / 20, 20) for each in history.bad], model
        )
    case = Case(pace.spec, series, pace.step)
    for end in range(14, length):
        now = {model: history.pages(factor, budget, end) for model, history in histories.items()}
        before = {model: history.pages(factor, budget, end - 1) for model, history in histories.items()}
        sure = {model for model, pages in now.items() if pages is not None}
        among = FAST.replace("{window", f'{{model=~"{"|".join(sorted(sure))}",window')
        case.expect(pace.seconds(end), among, {f'{{model="{model}"}}': 1.0 for model in sure if now[model]})
        # The page may also fire for the slow tier.
        paged = {model for model in histories if now[model] or before[model]}
        among = PAGE.replace("ALERTS{", f'ALERTS{{model=~"{"|".join(sorted(paged))}",')
        case.expect(pace.seconds(end), among, {f'{{model="{model}"}}': 1.0 for model in paged})
    Promtool(programs, tmp_path).test([case])


def test_counter_resets_neither_raise_nor_end_a_page(promtool: Promtool, pace: Pace) -> None:
    """The exporter restarts halfway, once without errors and once in a burn."""

    def twice(model: str, share: float) -> dict[str, str]:
        halves = [pace.slo_events((12, 40, share), start=start, model=model) for start in (5000.0, 0.0)]
        return {
            name: f"{first} {second}"
            for (name, first), second in zip(halves[0].items(), halves[1].values(), strict=True)
        }

    case = Case(pace.spec, twice("well", 0.01) | twice("burns", 0.9), pace.step)
    for step in range(11, 24):
        case.expect(pace.seconds(step), PAGE, {'{model="burns"}': 1})
    promtool.test([case])
