"""The state of each SLO and class: budget, burn rate, alerts, urgency, and the sentence that sums them up."""

from alerts.labels import severity_value
from alerts.promql.build import (
    aggregate,
    call,
    equal,
    ignoring,
    max_by,
    min_by,
    not_equal,
    on,
    regex,
    select,
)
from alerts.promql.expression import Expression, Matcher, Selector
from alerts.tiers import Severity
from dashboards.queries.labels import join_labels
from dashboards.windows.slo import PERIOD, in_page_window
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import ACTIVE_SINCE, FIRING, Label
from exporters.vocabulary.slo_file import Severities

SLO_AND_CLASS = (Label.SLO, Label.CLASS)
ALERT_IS_FIRING = Matcher("alertstate", "=", "firing")
VERDICT_LABELS = _BURNING, _TOTAL, _WORST, _PAGES, _TICKETS = ("burning", "total", "worst", "pages", "tickets")
"""The labels of `verdict`, parts of a sentence."""

PAGE_WEIGHT = 1000
"""The value of `verdict` for one page: above what tickets and burning SLOs add up to."""

_SAME = on(*SLO_AND_CLASS)


def pairs() -> Expression:
    """1 for each SLO and class of the SLO file."""
    return aggregate("group", signals.SLO_OBJECTIVE, by=SLO_AND_CLASS)


def budget_left() -> Expression:
    """The share of the budget, of the worst model; below 0 it is overspent."""
    return min_by(signals.SLO_BUDGET_LEFT, SLO_AND_CLASS)


def page_burn_rate() -> Expression:
    """The burn rate in the long window of the fast page tier, of the worst model."""
    return max_by(in_page_window(signals.SLO_BURN_RATE), SLO_AND_CLASS)


def time_left() -> Expression:
    """Seconds until the budget is spent at the present burn rate; absent if it is spent, or nothing burns."""
    return (budget_left() > 0) * PERIOD / (page_burn_rate() > 0)


def urgency(severities: Severities) -> Expression:
    """The most urgent SLO has the lowest value: pages, tickets, spent budgets, then by the time left."""
    page, ticket = (
        aggregate("group", firing_since(severity_value(severities, each), regex(Label.SLO, ".+")), by=SLO_AND_CLASS)
        for each in (Severity.PAGE, Severity.TICKET)
    )
    # larger than any number of seconds
    alerts = (2e12 * page).or_(1e12 * ticket, _SAME).or_(0 * pairs(), _SAME)
    return _by_time_left().or_(1e10 + budget_left()).or_(1e11 * pairs()).binary("-", alerts, _SAME)


def _by_time_left(least_burn: float = 0) -> Expression:
    """A share below 0 for spent budgets, seconds for the others."""
    budget = budget_left()
    return (budget <= 0).or_((budget > 0) * PERIOD / (page_burn_rate() > least_burn))


def firing_since(severity: str, *matchers: Matcher) -> Expression:
    """The time at which each alert of this severity that fires became active, in unix milliseconds."""
    shown = regex(Label.MODEL, "$model"), regex(Label.CLASS, "$class")
    return active_since(select(ACTIVE_SINCE, *shown, equal(Label.SEVERITY, severity), *matchers))


def active_since(selector: Selector) -> Expression:
    """Unix milliseconds, of firing alerts only."""
    return (1000 * selector).and_(select(FIRING, ALERT_IS_FIRING), ignoring("alertstate"))


def verdict(severities: Severities, *of: Matcher) -> Expression:
    """One series, whose labels are the parts of a sentence; 0 if all is well, from `PAGE_WEIGHT` on with a page.

    `of` selects alerts.
    """
    zero = call("vector", 0)
    burning = aggregate("count", page_burn_rate() > 1).or_(zero)
    pages, tickets = (
        aggregate(
            "count",
            select(
                FIRING,
                ALERT_IS_FIRING,
                equal(Label.SEVERITY, severity_value(severities, each)),
                not_equal(Label.ALERTNAME, AlertName.WATCHDOG),
                *of,
            ),
        ).or_(zero)
        for each in (Severity.PAGE, Severity.TICKET)
    )
    value = PAGE_WEIGHT * pages + tickets + burning
    parts: tuple[tuple[str, Expression], ...] = (
        (_TOTAL, _spelled(_TOTAL, aggregate("count", pairs()))),
        (_WORST, _worst(severities)),
        (_PAGES, _counted(_PAGES, pages, "page")),
        (_TICKETS, _counted(_TICKETS, tickets, "ticket")),
    )
    sentence: Expression = _spelled(_BURNING, burning)
    for label, part in parts:
        sentence = sentence.binary("*", part, on(left=[label]))
    return sentence.binary("*", value, on(left=()))


def _worst(severities: Severities) -> Expression:
    """The most urgent SLO that burns or is overspent, and when its budget ends; else a series without the label.

    Hours and minutes are digits of one number after a 1, which makes it a number of five digits.
    """
    burns = _by_time_left(least_burn=1)
    most_urgent = aggregate("bottomk", urgency(severities).and_(burns, _SAME), parameter=1)
    left = call("clamp_min", burns.and_(most_urgent, _SAME), 0)
    digits = 10_000 + 100 * call("floor", left / 3600) + call("floor", left % 3600 / 60)
    text = _spelled("gone", digits)
    for pattern, replacement in (
        ("10000", "budget spent"),
        ("1(..)(..)", "budget gone in $1 h $2 min"),
        ("[0-9]+", "budget gone in over 4 d"),
        ("budget gone in 0(.*)", "budget gone in $1"),
        ("budget gone in 0 h 0?(.*)", "budget gone in $1"),
    ):
        text = _replaced(text, "gone", pattern, replacement)
    name = join_labels(join_labels(text, _WORST, " ", Label.CLASS, Label.SLO), _WORST, ", ", _WORST, "gone")
    return aggregate("group", _replaced(name, _WORST, "(.*)", "; worst: $1"), by=[_WORST]).or_(call("vector", 1), on())


def _spelled(label: str, number: Expression) -> Expression:
    """1, with the number as a label."""
    return aggregate("count_values", number, by=SLO_AND_CLASS, parameter=label)


def _counted(label: str, number: Expression, noun: str) -> Expression:
    """Such as `no page`, `1 page` or `2 pages`."""
    several = _replaced(_spelled(label, number), label, "(.*)", f"$1 {noun}s")
    return _replaced(_replaced(several, label, f"1 {noun}s", f"1 {noun}"), label, f"0 {noun}s", f"no {noun}")


def _replaced(of: Expression, label: str, pattern: str, text: str) -> Expression:
    return call("label_replace", of, label, text, label, pattern)
