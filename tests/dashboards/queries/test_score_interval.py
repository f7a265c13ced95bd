"""The dashboard shows a change of a share if `vllm-slo compare` calls it significant."""

import pytest

from alerts.promql.build import call, equal, select, sum_by
from alerts.promql.expression import Expression, Selector
from dashboards.queries.score_interval import Share, quantile_changed, significant_change
from exporters.analysis.estimates import estimates
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.support.promtool import Case, Promtool

# events with the property and all events, before and after
COUNTS = (
    ((50, 100), (95, 100)),  # a large rise
    ((95, 100), (50, 100)),  # a large fall
    ((50, 100), (55, 100)),  # a small rise
    ((90, 100), (97, 100)),  # just not significant
    ((89, 100), (98, 100)),  # just significant
    ((3, 4), (0, 4)),  # few events
    ((0, 10), (0, 1000)),  # none
    ((10, 10), (1000, 1000)),  # all
    ((0, 20), (20, 20)),  # from none to all
)


def vector(value: float) -> Expression:
    return call("vector", value)


def test_a_change_is_shown_if_the_interval_of_the_comparison_excludes_zero(promtool: Promtool) -> None:
    case, shown = Case(load(SHIPPED), {"x": "1x4"}, 15.0), 0
    for before, after in COUNTS:
        difference = estimates.Difference(*(estimates.Share(part / whole, whole) for part, whole in (before, after)))
        low, high = difference.interval(estimates.Z)
        is_significant = low > 0 or high < 0
        shown += is_significant
        shares = (Share(vector(part), vector(whole)) for part, whole in (before, after))
        expected = {"{}": round(difference.value, 6)} if is_significant else {}
        case.expect(30.0, str(call("round", 1e6 * significant_change(*shares)) / 1e6), expected)
    assert shown == 5
    promtool.test([case])


def test_a_window_without_events_has_no_change(promtool: Promtool) -> None:
    none, some = Share(vector(0), vector(0)), Share(vector(3), vector(5))
    case = Case(load(SHIPPED), {"x": "1x4"}, 15.0)
    case.expect(30.0, str(significant_change(none, some)), {})
    promtool.test([case.expect(30.0, str(significant_change(some, none)), {})])


def test_the_counts_are_queried_28_times() -> None:
    """Prometheus evaluates a repeated selector again."""
    before, after = (Share(select(f"{name}_part"), select(f"{name}_whole")) for name in "ab")
    nodes = list(significant_change(before, after).walk())
    assert sum(isinstance(node, Selector) for node in nodes) == 28


# requests at or below 1 s, at or below 2 s, and all, before and after
HISTOGRAMS = (
    pytest.param((900, 990, 1000), (905, 991, 1000), False, id="the same"),
    pytest.param((960, 990, 1000), (100, 990, 1000), True, id="slower"),
    pytest.param((100, 990, 1000), (990, 1000, 1000), True, id="faster"),
    pytest.param((0, 1000, 1000), (1000, 1000, 1000), True, id="all in one bucket"),
    pytest.param((960, 1000, 1000), (940, 1000, 1000), False, id="too little"),
    pytest.param((3, 4, 4), (2, 4, 4), False, id="too few"),
    pytest.param((900, 990, 1000), (100, 990, 1000), False, id="within a bucket"),
)


@pytest.mark.parametrize("before, after, is_changed", HISTOGRAMS)
def test_a_quantile_changed_if_the_shares_between_both_differ(
    promtool: Promtool, before: tuple[int, ...], after: tuple[int, ...], is_changed: bool
) -> None:
    buckets = {"before": before, "after": after}
    series = {
        f'{name}{{class="siso",le="{bound}"}}': f"{count}x4"
        for name, counts in buckets.items()
        for bound, count in zip(("1", "2", "+Inf"), counts, strict=True)
    }
    within = (select("before"), select("after"))
    counts = (
        sum_by(select("before", equal("le", "+Inf")), ["class"]),
        sum_by(select("after", equal("le", "+Inf")), ["class"]),
    )
    case = Case(load(SHIPPED), series, 15.0)
    expected = {'{class="siso"}': 1.0} if is_changed else {}
    promtool.test([case.expect(30.0, str(quantile_changed(0.95, within, counts)), expected)])
