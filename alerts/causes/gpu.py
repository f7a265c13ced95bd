"""Tickets for GPUs, from the series of DCGM's exporter; without them no alert fires."""

from functools import reduce

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import ago, call, max_by, on, over, select
from alerts.promql.expression import Expression
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert
from alerts.rules.wording import percent
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label

GPU_LABELS = (Label.GPU_HOST, Label.GPU, Label.MIG_INSTANCE, Label.MIG_PROFILE, Label.GPU_MODEL)
_GPU = "GPU {{ $labels.gpu }}{{ with $labels.GPU_I_PROFILE }} ({{ . }}){{ end }} of {{ $labels.Hostname }}"
_THROTTLED_SHARE = 0.1

APPLICATION_XIDS = (13, 31, 43, 45, 68, 109)
"""Xid errors by a fault or the end of a program, for which NVIDIA's device plugin for Kubernetes keeps the GPU."""


def gpu_alerts(plan: Plan) -> tuple[Alert, ...]:
    return _throttled(plan), _xid(plan)


def reasons() -> Expression:
    """The bit mask of the reasons for a reduced clock, by the name of either DCGM."""
    return max_by(signals.GPU_CLOCK_REASONS, GPU_LABELS).or_(max_by(signals.GPU_THROTTLE_REASONS, GPU_LABELS))


def protects_itself(mask: Expression) -> Expression:
    """1 while the hardware or its temperature reduces the clock: bits 3 and 5 to 7 of the mask, else 0.

    Bit 2, the power limit, is set whenever a large batch is computed; bit 0, idle, whenever nothing is.
    """
    bits = (call("floor", mask / 8) % 2) + (call("floor", mask / 32) % 8)
    return call("clamp_max", bits, 1)


def at_power_limit(mask: Expression) -> Expression:
    """1 while the power limit reduces the clock: bit 2 of the mask, else 0."""
    return call("floor", mask / 4) % 2


def _throttled(plan: Plan) -> Alert:
    window = plan.lookback
    share = over("avg_over_time", protects_itself(reasons()), window, plan.direct_interval)
    return alert(
        plan,
        AlertName.GPU_THROTTLED,
        (DashboardUid.ENGINE, PanelTitle.GPU_THROTTLING),
        share > _THROTTLED_SHARE,
        f"{_GPU} reduced its clock for {{{{ $value | humanizePercentage }}}} of {spell_duration(window)}",
        f"{_GPU} was too hot, or lacked power from its supply, for {{{{ $value | humanizePercentage }}}} of the last "
        f"{spell_duration(window)}; a ticket above {percent(_THROTTLED_SHARE)}. The power limit of the GPU is not "
        "counted. Every request on this GPU is slower. Look first at the temperature of this GPU and of the others in "
        "the host, then at fans and power supplies.",
    )


def _xid(plan: Plan) -> Alert:
    """The series keeps the last error until the exporter restarts, so the alert ends a day after a change."""

    def failed(at: Expression) -> Expression:
        return reduce(lambda left, xid: left.binary("!=", xid), APPLICATION_XIDS, max_by(at, GPU_LABELS) > 0)

    last = select(signals.GPU_XID)
    old = max_by(ago(last, plan.day), GPU_LABELS)
    codes = ", ".join(map(str, APPLICATION_XIDS))
    return alert(
        plan,
        AlertName.GPU_XID,
        (DashboardUid.ENGINE, PanelTitle.GPU_XID),
        failed(last).unless(max_by(last, GPU_LABELS).binary("==", old, on(*GPU_LABELS)), on(*GPU_LABELS)),
        f'{_GPU} reported Xid {{{{ printf "%.0f" $value }}}}',
        f'The driver reported Xid {{{{ printf "%.0f" $value }}}} for {_GPU} in the last {spell_duration(plan.day)}. '
        f"Faults of programs ({codes}) are not counted, so the GPU, its memory or a link has failed. Look first at "
        "NVIDIA's table of Xid errors, which says whether to restart the engine, reset the GPU or replace it.",
    )
