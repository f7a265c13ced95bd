"""A page for a replica that is much worse than its peers, which the budget of all replicas shows late or never."""

from alerts import burn_text
from alerts.alert_annotations import annotated_alert
from alerts.alert_names import AlertName
from alerts.cold_start import page_bridge, starting
from alerts.links import Links
from alerts.promql_text import in_window, ratio, sum_by
from alerts.recording_rules import direct_count
from alerts.recording_windows import windows
from alerts.rule_groups import Alert, Recording
from alerts.step_counts import windowed
from alerts.tiers import Severity
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import COLD_START, ENGINE_UP, Label
from exporters.slos import SloFile

BAD_SHARE = 0.5
"""An outlier has at least this share of bad events; a replica below it counts as a peer."""

TIMES_ITS_PEERS = 2.0

IMPROBABILITY = 20.0
"""An equally good replica is an outlier with a probability of at most e^-20 (2e-9) per evaluation, class and SLO."""

_ALIKE = [Label.MODEL, Label.CLASS, Label.SLO]
_SAME_CLASS, _SAME_REPLICA = "on (model, class, slo)", "on (instance, model, class, slo)"


def replica_rules(spec: SloFile, links: Links) -> tuple[Recording | Alert, ...]:
    length = outlier_window(spec)
    window = spell_duration(length)
    events, bad, error_ratio = _recorded(window)
    suspect = windowed(
        signals.OUTLIER_ERROR_RATIO,
        window,
        f"{error_ratio} >= {number(BAD_SHARE)} and {_SAME_REPLICA} {bad} >= {spec.alerting.min_bad}",
    )
    of_all = f"{sum_by(bad, _ALIKE)} / {sum_by(events, _ALIKE)}"
    return (
        direct_count(signals.SLO_EVENTS, signals.INSTANCE_EVENTS_IN, length),
        direct_count(signals.SLO_BAD, signals.INSTANCE_BAD_IN, length),
        windowed(signals.INSTANCE_ERROR_RATIO, window, ratio(bad, events)),
        # Recorded, as they usually have no series: comparing all replicas would take longer than counting their events.
        suspect,
        windowed(
            signals.REPLICAS_ERROR_RATIO,
            window,
            f"{of_all} and {_SAME_CLASS} {in_window(signals.OUTLIER_ERROR_RATIO, window)}",
        ),
        _outlier(spec, links, window),
    )


def outlier_window(spec: SloFile) -> float:
    """Two steps: a replica without a good request is half bad after one step."""
    return round(2 * windows(spec).step, 3)


def outlier_interval(spec: SloFile) -> float:
    """Five evaluations in the window, but at most one per scrape."""
    return max(spec.scrape_interval, outlier_window(spec) / 5)


def _outlier(spec: SloFile, links: Links, window: str) -> Alert:
    """By replica and not by class, so that a broken replica is one alert."""
    starts = starting(f"last_over_time({COLD_START.name}[{window}])")
    matchers = f'instance=%q,model=%q,window="{window}"'
    worst = f"topk(1, {signals.INSTANCE_ERROR_RATIO.name}{{{matchers}}})"
    named = f"query (printf `{worst}` $labels.instance $labels.model)"
    return annotated_alert(
        AlertName.OUTLIER,
        Severity.PAGE,
        "100 * max by (instance, model) (\n"
        f"  {in_window(signals.OUTLIER_ERROR_RATIO, window)} > {_SAME_CLASS} group_left ()\n"
        f"    ({number(TIMES_ITS_PEERS)} * {_error_ratio_of_peers(window)})\n"
        f"  and {_SAME_REPLICA} {_improbability(window)} > {number(IMPROBABILITY)}\n"
        f"  unless on (instance) {starts}\n"
        # LLMEngineDown pages for these.
        f"  unless on (instance) max by (instance) ({ENGINE_UP.name}) == 0\n"
        ")",
        links,
        f"replica {{{{ $labels.instance }}}} of {burn_text.MODEL}: {burn_text.SHARE} bad",
        f"In the last {burn_text.spaced(outlier_window(spec))}, {burn_text.SHARE} of the{{{{ with {named} }}}} "
        '{{ . | first | label "class" }}{{ end }} requests at {{ $labels.instance }} were bad'
        f'{{{{ with {named} }}}} for the SLO {{{{ . | first | label "slo" }}}}{{{{ end }}}}. Other replicas of '
        f"{burn_text.MODEL} serve this class with less than half of that. Look first at the log and the GPU of its "
        "engine; drain it if its peers can serve its load.",
        keep_firing_for=page_bridge(spec),
    )


def _recorded(window: str) -> tuple[str, str, str]:
    """Events, bad events and their ratio."""
    each = (signals.INSTANCE_EVENTS_IN, signals.INSTANCE_BAD_IN, signals.INSTANCE_ERROR_RATIO)
    events, bad, error_ratio = (in_window(series, window) for series in each)
    return events, bad, error_ratio


def _error_ratio_of_peers(window: str) -> str:
    """Of the replicas that are not bad themselves; absent if there is none."""
    events, bad, error_ratio = _recorded(window)
    are_peers = f"and {_SAME_REPLICA} {error_ratio} < {number(BAD_SHARE)}"
    return f"{sum_by(f'{bad} {are_peers}', _ALIKE)} / {sum_by(f'{events} {are_peers}', _ALIKE)}"


def _improbability(window: str) -> str:
    """The negative logarithm of the probability of so many bad events at a replica that is like all others.

    Chernoff's bound: of n events from a total of which the share p is bad, the share q or more is bad with a
    probability of at most e^(-n (q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)))). It holds for draws without
    replacement (Hoeffding, 1963), so the total includes this replica.
    """
    events, _, _ = _recorded(window)
    suspect, of_all = in_window(signals.OUTLIER_ERROR_RATIO, window), in_window(signals.REPLICAS_ERROR_RATIO, window)

    def term(share: str, share_of_all: str) -> str:
        return f"{share} * ln({share} / {_SAME_CLASS} group_left () {share_of_all})"

    # a share of 0 would be NaN
    good, good_of_all = (f"clamp_min(1 - {each}, 1e-9)" for each in (suspect, of_all))
    return f"{events} * (\n    {term(suspect, of_all)}\n    + {term(good, good_of_all)}\n  )"
