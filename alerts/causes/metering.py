"""Tickets for metering that fails or comes close to a limit, and for failed transfers of KV cache."""

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import increase, max_by, over, sum_by, vector
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert
from alerts.rules.wording import percent
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label

_UNMETERED_SHARE, _CONNECTIONS_SHARE, _RESTARTS, _LAG_BYTES = 0.01, 0.8, 3, 1e6
_COUNT, _AT = '{{ printf "%.0f" $value }}', "{{ $labels.instance }}"
_SHARE = "{{ $value | humanizePercentage }}"
_NOT_COUNTED = DashboardUid.SIDECAR, PanelTitle.NOT_COUNTED


def metering_alerts(plan: Plan) -> tuple[Alert, ...]:
    return (
        _unmetered(plan),
        _connections(plan),
        _restarts(plan),
        _task_errors(plan),
        _follow_lag(plan),
        _dropped_spans(plan),
        _kv_transfers(plan),
    )


def _unmetered(plan: Plan) -> Alert:
    """The relay forwards a request that it cannot meter, so missing measurements cause no error."""
    unmetered, begun = (
        sum_by(increase(each, plan.half_hour), [Label.INSTANCE])
        for each in (signals.SIDECAR_UNMETERED, signals.SIDECAR_BEGUN)
    )
    many = (unmetered / begun > _UNMETERED_SHARE).and_(unmetered >= plan.spec.alerting.min_bad)
    texts = (
        f"the sidecar {_AT} does not meter {_SHARE} of its requests",
        (
            f"{_AT} forwarded {_SHARE} of its requests of the last {spell_duration(plan.half_hour)} without metering; "
            f"a ticket above {percent(_UNMETERED_SHARE)}. They were served, but are in no SLO. Look first at the "
            "reason, which is a type of exception, and at the log of the sidecar."
        ),
    )
    return alert(plan, AlertName.UNMETERED, _NOT_COUNTED, many, *texts)


def _connections(plan: Plan) -> Alert:
    used = vector(signals.SIDECAR_CONNECTIONS) / vector(signals.SIDECAR_CONNECTIONS_LIMIT)
    texts = (
        f"the sidecar {_AT} uses {_SHARE} of its client connections",
        (
            f"A relay of {_AT} has {_SHARE} of the client connections that it accepts, for {spell_duration(plan.step)} "
            "or more. At the limit, new clients get status 503. Look first at whether clients leave connections open, "
            "then at the limit of open files."
        ),
    )
    panel = DashboardUid.SIDECAR, PanelTitle.CONNECTIONS
    near = max_by(used, [Label.INSTANCE]) > _CONNECTIONS_SHARE
    return alert(plan, AlertName.CONNECTIONS, panel, near, *texts, pending_for=plan.step)


def _restarts(plan: Plan) -> Alert:
    restarts = sum_by(increase(signals.SIDECAR_RESTARTS, plan.hour), [Label.INSTANCE, Label.PROCESS])
    texts = (
        f"the process {{{{ $labels.process }}}} of the sidecar {_AT} keeps restarting",
        (
            f"The supervisor of {_AT} has started {{{{ $labels.process }}}} again {_COUNT} times in the last "
            f"{spell_duration(plan.hour)}; a ticket from {_RESTARTS} on. Look first at its last lines in the log, "
            "then at the memory limit."
        ),
    )
    panel = DashboardUid.SIDECAR, PanelTitle.RESTARTS
    return alert(plan, AlertName.SIDECAR_RESTARTS, panel, restarts > _RESTARTS - 0.5, *texts)


def _task_errors(plan: Plan) -> Alert:
    errors = sum_by(increase(signals.SIDECAR_TASK_ERRORS, plan.half_hour), [Label.INSTANCE, Label.PROCESS])
    texts = (
        f"a task of the sidecar {_AT} fails repeatedly",
        (
            f"Tasks of {{{{ $labels.process }}}} at {_AT} failed {_COUNT} times in the last "
            f"{spell_duration(plan.half_hour)}. The sidecar continues, but what the task does is missing. Look first "
            "at the log of the sidecar, which has each type of error once."
        ),
    )
    panel = DashboardUid.SIDECAR, PanelTitle.TASK_ERRORS
    return alert(plan, AlertName.TASK_ERRORS, panel, errors >= plan.spec.alerting.min_bad, *texts)


def _follow_lag(plan: Plan) -> Alert:
    """A follower that is slow for a moment catches up; one that never does within the window falls behind.

    While the log cannot be read, its lag is unknown.
    """
    lag = over("min_over_time", signals.FOLLOW_LAG, plan.lookback)
    unread = over("max_over_time", signals.FOLLOW_UP, plan.lookback) < 1
    texts = (
        f"the sidecar {_AT} is behind the log that it follows",
        (
            f"For {spell_duration(plan.lookback)}, {_AT} could not read the followed log, or had "
            f"{_LAG_BYTES / 1e6:.0f} MB or more of it still to count. All its series are late, and so are alerts. Look "
            "first at the log of the sidecar, then at the CPU of the exporter process."
        ),
    )
    panel = DashboardUid.SIDECAR, PanelTitle.FOLLOW_LAG
    return alert(plan, AlertName.FOLLOW_LAG, panel, (lag > _LAG_BYTES).or_(unread), *texts)


def _dropped_spans(plan: Plan) -> Alert:
    dropped = sum_by(increase(signals.SIDECAR_DROPPED_SPANS, plan.half_hour), [Label.INSTANCE, Label.REASON])
    texts = (
        f"the sidecar {_AT} drops spans",
        (
            f"{_AT} dropped {_COUNT} spans in the last {spell_duration(plan.half_hour)} ({{{{ $labels.reason }}}}). "
            "Traces are incomplete; requests and series are not affected. Look first at whether the trace collector "
            "responds."
        ),
    )
    panel = DashboardUid.SIDECAR, PanelTitle.SPANS_DROPPED
    return alert(plan, AlertName.DROPPED_SPANS, panel, dropped >= plan.spec.alerting.min_bad, *texts)


def _kv_transfers(plan: Plan) -> Alert:
    by = (Label.INSTANCE, Label.ENGINE, Label.MODEL)
    failed = sum_by(increase(signals.ENGINE_KV_TRANSFER_FAILURES, plan.half_hour), by)
    texts = (
        "transfers of KV cache fail at {{ $labels.engine }} of {{ $labels.model }}",
        (
            f"{_COUNT} transfers of KV cache failed at {{{{ $labels.engine }}}} at {_AT} in the last "
            f"{spell_duration(plan.half_hour)}. Their requests fail or repeat the prefill. Look first at the network "
            "between the prefill and the decode engines."
        ),
    )
    # not the panel of the failures: its row is collapsed
    panel = DashboardUid.ENGINE, PanelTitle.ENGINE
    return alert(plan, AlertName.KV_TRANSFERS, panel, failed >= plan.spec.alerting.min_bad, *texts)
