"""A ticket for targets that Prometheus scrapes at another interval than the SLO file states."""

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import max_by, on, over
from alerts.promql.expression import Expression
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert
from alerts.scrape_jobs import targets_up
from exporters.text.units import spell_duration
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label

_TOLERANCE = 1.4
"""Common intervals (5, 10, 15, 30 and 60 s) differ by more than this factor; a few missed scrapes by less."""

_TARGET = (Label.JOB, Label.INSTANCE)


def scrape_interval_alert(plan: Plan) -> Alert:
    """The mean interval of forty scrapes is too short, or too long without ten scrapes at the expected interval.

    Without the second condition, a target that comes and goes would look like one that is scraped rarely.
    """
    expected = plan.spec.scrape_interval
    window, short = 40 * expected, 10 * expected

    def scrapes(seconds: float) -> Expression:
        # A millisecond less, as Prometheus 2 includes both ends of a range.
        return over("count_over_time", targets_up(plan), seconds - 0.001)

    interval = max_by(window / scrapes(window), _TARGET)
    most_in_short = max_by(over("max_over_time", scrapes(short), window, 2 * expected), _TARGET)
    too_long = (interval > round(_TOLERANCE * expected, 3)).unless(
        most_in_short > round(10 / _TOLERANCE, 3), on(*_TARGET)
    )
    return alert(
        plan,
        AlertName.SCRAPE_INTERVAL,
        (DashboardUid.SIDECAR, PanelTitle.SIDECAR),
        too_long.or_(interval < round(expected / _TOLERANCE, 3)),
        "Prometheus scrapes {{ $labels.instance }} every {{ $value | humanizeDuration }}, not every "
        f"{spell_duration(expected)}",
        "The target {{ $labels.instance }} of the job {{ $labels.job }} was scraped every "
        f"{{{{ $value | humanizeDuration }}}} in the last {spell_duration(window)}. The rules were rendered for "
        f"{spell_duration(expected)} (`scrape_interval` in the SLO file), so counts of a step are less accurate, and "
        "alerts on targets that are down or stalled are late or silent. Look first at `scrape_interval` of this job "
        "in Prometheus.",
        pending_for=window,
    )
