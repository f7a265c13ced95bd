"""Alerts on sidecars, engines and certificates that are down, wedged, lossy or about to expire."""

from collections.abc import Iterator

from alerts.burn.cold_start import in_state
from alerts.causes.missing_targets import by_urgency, missing_targets, no_target
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import (
    aggregate,
    call,
    either,
    equal,
    increase,
    max_by,
    on,
    over,
    regex,
    select,
    sum_by,
    with_model,
)
from alerts.promql.expression import AlertLabel, Expression
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording
from alerts.rules.target_labels import if_found
from alerts.scrape_jobs import targets_up
from alerts.tiers import Severity
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import ENGINE_MODEL, Label, Signal

_DAY = 86400.0
_COUNT = '{{ printf "%.0f" $value }}'
_OF_MODEL = "{{ with $labels.model }} of {{ . }}{{ end }}"
_INSTANCE, _ENGINE = on(Label.INSTANCE), on(Label.INSTANCE, Label.ENGINE)


def engine_model(plan: Plan) -> Recording:
    """The models of each engine. While an engine is down, the last ones are kept, as long as its target exists."""
    now = aggregate("group", signals.ENGINE_RUNNING, by=ENGINE_MODEL.labels)
    last = over("last_over_time", ENGINE_MODEL, "1h").and_(targets_up(plan), _INSTANCE)
    return Recording(ENGINE_MODEL, now.or_(last, _ENGINE))


def liveness_alerts(plan: Plan) -> tuple[Alert, ...]:
    sidecar = _sidecar_down(plan) if plan.has_sidecar else ()
    return (*sidecar, *_engine_down(plan), _watchdog(plan), *missing_targets(plan))


def sidecar_alerts(plan: Plan) -> tuple[Alert, ...]:
    """Alerts on losses, failed reloads and certificates; they need no evaluation at each scrape."""
    return (
        *_losses(plan),
        _reload_failed(plan),
        _certificate(plan, Severity.PAGE, _DAY, 8),
        _certificate(plan, Severity.TICKET, 7 * _DAY, 4),
    )


def _sidecar_down(plan: Plan) -> Iterator[Alert]:
    up = targets_up(plan)
    models = aggregate("group", ENGINE_MODEL, by=[Label.INSTANCE, Label.MODEL])
    serving = models.binary("*", up, on(Label.INSTANCE, left=[Label.JOB])).or_(up, _INSTANCE)
    # With another job name, no alert could ever fire.
    for severity, expr, group in by_urgency(plan, serving.binary("==", 0), serving, no_target(plan)):
        yield alert(
            plan,
            AlertName.SIDECAR_DOWN,
            (DashboardUid.SIDECAR, PanelTitle.SIDECAR),
            expr,
            f"the sidecar {{{{ $labels.instance }}}}{_OF_MODEL} does not answer Prometheus",
            f"No scrape of the job {' or '.join(plan.spec.scrape_job)} "
            f"{{{{ with $labels.instance }}}}at {{{{ . }}}} {{{{ end }}}}succeeded for "
            f"{spell_duration(plan.down_after)}. Its requests are not measured and may not be served, and no other "
            f"alert can fire for it. {group}Look first at whether clients still get responses.",
            severity=severity,
            pending_for=plan.down_after,
        )


def _reached(plan: Plan) -> Expression:
    """1 for each engine that was reached recently, else 0."""
    return max_by(over("max_over_time", signals.ENGINE_UP, plan.down_after), (Label.INSTANCE, Label.ENGINE))


def _engine_down(plan: Plan) -> Iterator[Alert]:
    """Does not fire while the engine may be starting: a starting engine looks like one that is down."""
    limit, alone = spell_duration(plan.cold_start), spell_duration(plan.warm_up)
    start = f"A start of up to {limit} raises no page, and of up to {alone} if no other engine serves its model"
    no_engine = None
    if plan.has_sidecar:
        engine = "the engine {{ $labels.engine }}"
        # A sidecar may fail to connect for a moment.
        down_for_long = over("min_over_time", select(signals.ENGINE_STATE, equal(Label.STATE, "down")), plan.down_after)
        failing = sum_by(down_for_long.binary("==", 1), [Label.INSTANCE, Label.ENGINE]).or_(
            in_state("starting"), _ENGINE
        )
        serving = _serving()
        symptom, second = f"The sidecar {{{{ $labels.instance }}}} finds {engine} down{_reason_and_time(plan)}", ""
    else:
        job = plan.spec.engine.job
        engine = f"the {{{{ with $labels.engine }}}}engine {{{{ . }}}}{{{{ else }}}}job {job}{{{{ end }}}}"
        serving = _reached(plan)
        failing, no_engine = serving.binary("==", 0), no_target(plan, plan.down_after)
        symptom = f"No scrape of {engine} has worked for {spell_duration(plan.down_after)} or more"
        second = f", unless it is the second within {spell_duration(plan.second_start)}"
    down = with_model(failing.unless(select(signals.COLD_START), _ENGINE))
    for severity, expr, group in by_urgency(plan, down, with_model(serving), no_engine):
        yield alert(
            plan,
            AlertName.ENGINE_DOWN,
            (DashboardUid.ENGINE, PanelTitle.ENGINE),
            expr,
            f"{engine}{_OF_MODEL} is down",
            f"{symptom}. {start}{second}. {group}Look first at the last lines of the engine's log.",
            severity=severity,
            # VictoriaMetrics shows the record of a cold start one evaluation later than the engine's state.
            pending_for=plan.liveness_interval,
            # An engine that restarts and exits again is one incident.
            keep_firing_for=plan.step,
        )


def _serving() -> Expression:
    """1 for each engine that its sidecar says to be serving, else 0."""
    return sum_by(select(signals.ENGINE_STATE, regex(Label.STATE, "serving|saturated")), [Label.INSTANCE, Label.ENGINE])


def _reason_and_time(plan: Plan) -> str:
    """The reason of the engine's state and its begin, for the description of an alert."""
    same = [equal(label, AlertLabel(label)) for label in (Label.INSTANCE, Label.ENGINE)]
    reason, since = (
        if_found(select(signal, *same), plan.spec.group_by, text)
        for signal, text in (
            (signals.ENGINE_STATE_REASON, " ({{ (first .).Labels.reason }})"),
            (signals.ENGINE_STATE_CHANGED, " since {{ (first .).Value | humanizeTimestamp }}"),
        )
    )
    return reason + since


def wedged_alerts(plan: Plan) -> Iterator[Alert]:
    """An engine that holds requests or accepts connections, and does nothing."""
    at = "the engine {{ $labels.engine }} at {{ $labels.instance }}"
    if plan.has_sidecar:
        failed, serves, pending_for = with_model(in_state("wedged")), with_model(_serving()), plan.down_after
        seen = (
            f"The sidecar has seen no progress of {at}, although requests wait for it, or no "
            f"answer{_reason_and_time(plan)}."
        )
    else:
        failed, pending_for = _stalled(plan), max(plan.step, 30.0)
        serves = (failed * 0).or_(with_model(_reached(plan)), _ENGINE)
        seen = (
            f"Requests are open at {at}, and for {spell_duration(pending_for)} no prompt or generation token has been "
            f"counted. Held back for {spell_duration(plan.warm_up)} after a start."
        )
    for severity, expr, group in by_urgency(plan, failed, serves):
        yield alert(
            plan,
            AlertName.ENGINE_WEDGED,
            (DashboardUid.ENGINE, PanelTitle.ENGINE_OUTPUT_TOKENS),
            expr,
            f"{at}{_OF_MODEL} is wedged",
            f"{seen} Its /health may still succeed. {group}Look first at the GPU and the end of its log, then restart "
            "it.",
            severity=severity,
            pending_for=pending_for,
        )


def _stalled(plan: Plan) -> Expression:
    """Engines with open requests whose token counts stand still, except during a cold start. Used without a sidecar."""
    # Twice in a window for targets that are scraped each minute.
    window = max(4 * plan.spec.scrape_interval, min(2.5 * 60.0, plan.step))
    engine = [Label.INSTANCE, Label.ENGINE, Label.MODEL]
    counts = (signals.ENGINE_RUNNING, signals.ENGINE_WAITING)
    requests = either(sum_by(over("max_over_time", each, window), engine) > 0 for each in counts)
    # With one sample in the window, tokens show no growth however fast they move.
    scraped_twice = over("count_over_time", signals.ENGINE_UP, window) >= 2
    tokens = (signals.ENGINE_GENERATION_TOKENS, signals.ENGINE_PROMPT_TOKENS)
    increased = either(sum_by(increase(counter, window), engine) > 0 for counter in tokens)
    return requests.and_(scraped_twice, _ENGINE).unless(increased, _ENGINE).unless(select(signals.COLD_START), _ENGINE)


def _losses(plan: Plan) -> tuple[Alert, ...]:
    """Tickets for what a sidecar has not counted or not logged."""
    window = spell_duration(plan.half_hour)

    def loss(name: AlertName, counter: Signal, more: list[Label], summary: str, description: str) -> Alert:
        lost = sum_by(increase(counter, plan.half_hour), [Label.INSTANCE, *more]) > 0
        panel = DashboardUid.SIDECAR, PanelTitle.NOT_COUNTED
        return alert(plan, name, panel, lost, summary, f"{{{{ $labels.instance }}}} has {description}")

    return (
        loss(
            AlertName.DROPPING,
            signals.SIDECAR_DROPPED,
            [],
            "the sidecar {{ $labels.instance }} loses measurements",
            f"dropped the records of {_COUNT} requests in the last {window}: its exporter process was away for too "
            "long or is too slow. Requests were served, but these are in no count. Look first at the CPU time and the "
            "log of the exporter process.",
        ),
        loss(
            AlertName.LOG_LINES,
            signals.SIDECAR_DROPPED_LINES,
            [Label.REASON],
            "the request log of the sidecar {{ $labels.instance }} is incomplete",
            f"dropped {_COUNT} lines of its request log in the last {window} ({{{{ $labels.reason }}}}), because it "
            "could not write the log for too long. Requests were served and all series are correct; reports that read "
            "the log miss these requests. Look first at the disk of the request log.",
        ),
        loss(
            AlertName.LOST,
            signals.SIDECAR_LOST,
            [Label.REASON],
            "a process of the sidecar {{ $labels.instance }} ended with requests open or unrecorded",
            f"lost {_COUNT} requests in the last {window} ({{{{ $labels.reason }}}}). They are in no other count and "
            "consume no error budget. relay_crashed: their clients saw the connection end, and the supervisor has "
            "started the relay again. sidecar_stopped: the sidecar ended before the exporter had recorded them. Look "
            "first at the memory limit, then at the log of the supervisor.",
        ),
    )


def _reload_failed(plan: Plan) -> Alert:
    return alert(
        plan,
        AlertName.RELOAD_FAILED,
        (DashboardUid.SIDECAR, PanelTitle.SLO_FILE),
        select(signals.SIDECAR_RELOAD_SUCCESSFUL).binary("==", 0),
        "the sidecar {{ $labels.instance }} has rejected its SLO file",
        "The SLO file was invalid when {{ $labels.instance }} received SIGHUP. It judges requests by the last valid "
        "file, which rules that are rendered from a newer file may not match. It does not start with the invalid file. "
        "Look first at the error in the log of the supervisor.",
    )


def _certificate(plan: Plan, severity: Severity, least: float, nth: int) -> Alert:
    """Less than `least` seconds are left; for certificates renewed within a week, less than an `nth` of the lifetime.

    The lifetime is not exposed. The maximum time left, over a week with a renewal, approximates it.
    """
    expiry = select(signals.SIDECAR_CERTIFICATE_EXPIRY)
    left = expiry - call("time")
    latest, earliest = (over(f"{each}_over_time", expiry, "7d", "30m") for each in ("max", "min"))
    return alert(
        plan,
        AlertName.CERTIFICATE,
        (DashboardUid.SIDECAR, PanelTitle.CERTIFICATE),
        (left < least).unless((left > over("max_over_time", left, "7d", "30m") / nth).and_(latest > earliest)),
        "the certificate of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}",
        f"Clients refuse {{{{ $labels.instance }}}} when its certificate has ended, in {{{{ $value | "
        f"humanizeDuration }}}}. A {severity} from {spell_duration(least)} on; where it is renewed "
        f"every week or sooner, when less than 1/{nth} of its life is left. Look first at why none replaced it; "
        "SIGHUP makes the sidecar read the new file.",
        severity=severity,
    )


def _watchdog(plan: Plan) -> Alert:
    return alert(
        plan,
        AlertName.WATCHDOG,
        (DashboardUid.OVERVIEW, PanelTitle.FIRING_ALERTS),
        call("vector", 1),
        "the alerting path works",
        "Fires always. Route it to a dead man's switch, which speaks up when it no longer hears this.",
        severity=Severity.NONE,
    )
