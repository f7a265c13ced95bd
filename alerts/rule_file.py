"""Assembles the rule file of an SLO file: all groups of recording rules and alerts."""

from dataclasses import replace

from alerts.burn.alerts import burn_rules, low_traffic_alert
from alerts.burn.cold_start import cold_start
from alerts.burn.tenants import tenant_groups
from alerts.causes.engine import engine_alerts
from alerts.causes.gpu import gpu_alerts
from alerts.causes.liveness import engine_model, liveness_alerts, sidecar_alerts, wedged_alerts
from alerts.causes.metering import metering_alerts
from alerts.causes.missing_targets import target_models
from alerts.causes.offered_traffic import offered_alert, offered_recording
from alerts.causes.replicas import replica_rules
from alerts.causes.scrape_interval import scrape_interval_alert
from alerts.causes.traffic import (
    busy_but_useless,
    requests_recordings,
    sidecar_recordings,
    surge_before,
    surge_recordings,
    traffic_alerts,
)
from alerts.engine_only import remarks
from alerts.group_limit import MAX_RULES, limited
from alerts.links import Links
from alerts.overrides import with_overrides
from alerts.plan import Plan
from alerts.prices import Prices
from alerts.recording.autoscaling import autoscaling_group
from alerts.recording.baselines import baseline_groups
from alerts.recording.cost import cost_groups
from alerts.recording.vllm_series import vllm_groups
from alerts.recording.windows import direct_windows, recording_groups
from alerts.rules.groups import Alert, Recording, RuleGroup, to_yaml
from alerts.rules.target_labels import with_target_labels
from exporters.vocabulary.slo_file import SloFile, Source

DEFAULT_LINKS = Links()


def rules(
    spec: SloFile, links: Links = DEFAULT_LINKS, prices: Prices | None = None, *, autoscaling: bool = False
) -> tuple[RuleGroup, ...]:
    """Burn alerts are in one group with their counts and the held pages, so that they read the same evaluation.

    `prices` adds the cost rules. Without a sidecar, only the rules that vLLM can feed, none for autoscaling.
    """
    plan = Plan.of(spec, links)
    groups = _groups(plan) if plan.has_sidecar else (*vllm_groups(plan), *_groups(plan))
    costs = () if prices is None else cost_groups(plan, prices)
    scaling = (autoscaling_group(plan),) if autoscaling and plan.has_sidecar else ()
    every = with_target_labels_of((*groups, *costs, *scaling), plan.spec.group_by)
    return with_overrides(every, plan.spec.alerting)


def with_target_labels_of(groups: tuple[RuleGroup, ...], labels: tuple[str, ...]) -> tuple[RuleGroup, ...]:
    """The rules for each combination of values of these labels."""
    return tuple(
        replace(
            group,
            rules=tuple(replace(rule, expr=with_target_labels(rule.expr, labels)) for rule in group.rules),
        )
        for group in groups
    )


def _groups(plan: Plan) -> tuple[RuleGroup, ...]:
    def measured(*of_sidecar: Recording | Alert) -> tuple[Recording | Alert, ...]:
        """Rules that only a sidecar can feed."""
        return of_sidecar if plan.has_sidecar else ()

    return (
        *recording_groups(plan),
        *baseline_groups(plan),
        RuleGroup(
            "vllm-slo-liveness",
            plan.liveness_interval,
            (engine_model(plan), cold_start(plan), *target_models(plan), *liveness_alerts(plan)),
        ),
        RuleGroup("vllm-slo-burn", plan.direct_interval, (*direct_windows(plan), *burn_rules(plan))),
        RuleGroup("vllm-slo-replicas", plan.outlier_interval, replica_rules(plan)),
        *tenant_groups(plan),
        RuleGroup("vllm-slo-wedged", plan.direct_interval, tuple(wedged_alerts(plan))),
        RuleGroup(
            "vllm-slo-causes",
            plan.outlier_interval,
            (
                *requests_recordings(plan),
                *measured(offered_recording(plan), *surge_recordings(plan), *traffic_alerts(plan)),
            ),
        ),
        RuleGroup(
            "vllm-slo-slow-causes",
            plan.summed_interval,
            (
                *sidecar_recordings(plan),
                *measured(surge_before(plan)),
                low_traffic_alert(plan),
                *measured(offered_alert(plan), busy_but_useless(plan)),
                *engine_alerts(plan),
                *gpu_alerts(plan),
                *measured(*sidecar_alerts(plan), *metering_alerts(plan)),
                scrape_interval_alert(plan),
            ),
        ),
    )


def render(spec: SloFile, links: Links = DEFAULT_LINKS, prices: Prices | None = None) -> str:
    """The rule file as YAML."""
    return to_yaml(limited(rules(spec, links, prices), MAX_RULES), head(spec))


def head(spec: SloFile) -> tuple[str, ...]:
    """The comments at the head of the rule file."""
    return () if spec.source is Source.SIDECAR else tuple(remarks(spec))
