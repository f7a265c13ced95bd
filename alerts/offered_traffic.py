"""A ticket for a model that has lost its requests: without requests, no SLO burns, so nothing else fires."""

from alerts import burn_text
from alerts.alert_annotations import annotated_alert, percent
from alerts.alert_names import AlertName
from alerts.links import Links
from alerts.promql_text import in_window, sum_by
from alerts.recording_windows import windows
from alerts.rule_groups import Alert, Recording
from alerts.scrape_jobs import targets_up
from alerts.tiers import Severity, tiers
from alerts.traffic_alerts import lookback
from exporters import signals
from exporters.quantities import spell_duration
from exporters.signals import ENGINE_MODEL, Label
from exporters.slos import SloFile

NEARLY_NONE = 0.05
"""Less than this share of the usual requests. Of 50 that are usual, Poisson leaves 2 or fewer once in 10^18 windows."""


def offered_recording(spec: SloFile) -> Recording:
    """Few series over weeks."""
    requests = sum_by(in_window(signals.ALL_REQUESTS_IN, lookback(spec)), [Label.MODEL])
    return Recording(signals.MODEL_REQUESTS_IN, requests, {Label.WINDOW: lookback(spec)})


def offered_alert(spec: SloFile, links: Links) -> Alert:
    """Ended and open requests, compared with the quietest window of the same hour last week.

    The quietest, so that a daily or weekly end of work that comes a little earlier is no loss. Only for models of an
    engine that has been up, with its sidecar, for the whole window: without one, no requests are expected.
    """
    lengths, window, least = windows(spec), lookback(spec), spec.alerting.min_events.page
    hour = tiers(spec.period)[0].long
    recorded = in_window(signals.MODEL_REQUESTS_IN, window)
    week_ago = f"min_over_time({recorded}[{spell_duration(hour)}] offset {spell_duration(lengths.week - hour / 2)})"
    hour_ago = f"avg_over_time({recorded}[{spell_duration(hour)}] offset {window})"
    usual = sum_by(f"{week_ago} or {hour_ago}", [Label.MODEL])
    offered = f"{sum_by(recorded, [Label.MODEL])} + {sum_by(signals.IN_FLIGHT.name, [Label.MODEL])}"
    up = targets_up(spec)
    return annotated_alert(
        AlertName.TRAFFIC_LOST,
        Severity.TICKET,
        f"{offered} < {NEARLY_NONE} * ({usual} >= {least})\n"
        f"and on (model) (\n  {ENGINE_MODEL.name}\n"
        f"  and on (instance) (min_over_time({up}[{window}]) == 1 and {up} offset {window} == 1)\n"
        f"  and on (instance, engine) min_over_time({signals.ENGINE_UP.name}[{window}]) == 1\n)",
        links,
        f'{burn_text.MODEL} received {{{{ printf "%.0f" $value }}}} requests in {window}, less than '
        f"{percent(NEARLY_NONE)} of the usual",
        f"In the last {window}, "
        f'{{{{ printf "%.0f" $value }}}} requests to {burn_text.MODEL} were open or ended. '
        f"That is less than {percent(NEARLY_NONE)} of the same hour last week, or of the hour before if the model is "
        f"newer. Its engines and sidecars are up, so other alerts end as if all were well. The alert needs "
        f"{least} usual requests or more. Look first at the gateway or load balancer in front of the sidecars.",
        pending_for=lengths.step,
    )
