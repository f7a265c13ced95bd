"""A ticket for targets that Prometheus scrapes at another interval than the SLO file states."""

from alerts.alert_annotations import annotated_alert
from alerts.alert_names import AlertName
from alerts.links import Links
from alerts.promql_text import max_by
from alerts.rule_groups import Alert
from alerts.scrape_jobs import targets_up
from alerts.tiers import Severity
from exporters.quantities import number, spell_duration
from exporters.signals import Label
from exporters.slos import SloFile

_TOLERANCE = 1.4
"""Common intervals (5, 10, 15, 30 and 60 s) differ by more than this factor; a few missed scrapes by less."""

_TARGET = (Label.JOB, Label.INSTANCE)


def scrape_interval_alert(spec: SloFile, links: Links) -> Alert:
    """The mean interval of forty scrapes is too short, or too long without ten scrapes at the expected interval.

    Without the second condition, a target that comes and goes would look like one that is scraped rarely.
    """
    expected = spec.scrape_interval
    window, short = 40 * expected, 10 * expected
    up = targets_up(spec)

    def scrapes(seconds: float) -> str:
        # A millisecond less, as Prometheus 2 includes both ends of a range.
        return f"count_over_time({up}[{spell_duration(seconds - 0.001)}])"

    interval = max_by(f"{number(window)} / {scrapes(window)}", _TARGET)
    in_short = f"max_over_time({scrapes(short)}[{spell_duration(window)}:{spell_duration(2 * expected)}])"
    return annotated_alert(
        AlertName.SCRAPE_INTERVAL,
        Severity.TICKET,
        f"{interval} > {number(round(_TOLERANCE * expected, 3))}\n"
        f"unless on (job, instance) {max_by(in_short, _TARGET)} > {number(round(10 / _TOLERANCE, 3))}\n"
        f"or {interval} < {number(round(expected / _TOLERANCE, 3))}",
        links,
        "Prometheus scrapes {{ $labels.instance }} every {{ $value | humanizeDuration }}, not every "
        f"{spell_duration(expected)}",
        "The target {{ $labels.instance }} of the job {{ $labels.job }} was scraped every "
        f"{{{{ $value | humanizeDuration }}}} in the last {spell_duration(window)}. The rules were rendered for "
        f"{spell_duration(expected)} (`scrape_interval` in the SLO file), so counts of a step are less accurate, and "
        "alerts on targets that are down or stalled are late or silent. Look first at `scrape_interval` of this job "
        "in Prometheus.",
        pending_for=window,
    )
