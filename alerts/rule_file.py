"""Assembles the rule file of an SLO file: all groups of recording rules and alerts."""

from alerts.alert_labels import with_alert_labels
from alerts.autoscaling_rules import autoscaling_group
from alerts.baselines import baseline_groups
from alerts.burn_alerts import burn_rules, low_traffic_alert
from alerts.cold_start import cold_start
from alerts.cost_rules import cost_groups
from alerts.engine_alerts import engine_alerts
from alerts.engine_only import effective_spec, remarks
from alerts.group_limit import MAX_RULES, limited
from alerts.links import Links
from alerts.liveness_alerts import engine_model, liveness_alerts, sidecar_alerts, stalled_alert
from alerts.missing_targets import target_models
from alerts.offered_traffic import offered_alert, offered_recording
from alerts.prices import Prices
from alerts.recording_rules import direct_windows, recording_groups
from alerts.recording_windows import alert_interval, direct_interval, summed_interval
from alerts.replica_alerts import outlier_interval, replica_rules
from alerts.rule_groups import RuleGroup, to_yaml
from alerts.scrape_interval import scrape_interval_alert
from alerts.target_labels import with_target_labels
from alerts.tenant_rules import tenant_groups
from alerts.traffic_alerts import (
    busy_but_useless,
    requests_recordings,
    sidecar_recordings,
    surge_before,
    surge_recordings,
    traffic_alerts,
)
from alerts.vllm_series import supported_groups, vllm_groups
from exporters.slos import SloFile, Source

DEFAULT_LINKS = Links()


def rules(
    spec: SloFile, links: Links = DEFAULT_LINKS, prices: Prices | None = None, *, autoscaling: bool = False
) -> tuple[RuleGroup, ...]:
    """Burn alerts are in one group with their counts and the held pages, so that they read the same evaluation.

    `prices` adds the cost rules. Without a sidecar, only the rules that vLLM can feed, none for autoscaling.
    """
    if spec.source is Source.SIDECAR:
        groups = (*_groups(spec, links, prices), *([autoscaling_group(spec)] if autoscaling else []))
    else:
        supported = supported_groups(_groups(effective_spec(spec), links, prices), spec)
        groups = (*vllm_groups(spec, links), *supported)
    return with_alert_labels(with_target_labels(groups, spec.group_by), spec)


def _groups(spec: SloFile, links: Links, prices: Prices | None) -> tuple[RuleGroup, ...]:
    interval = direct_interval(spec)
    return (
        *recording_groups(spec),
        *baseline_groups(spec),
        RuleGroup(
            "vllm-slo-liveness",
            alert_interval(spec),
            (cold_start(spec), engine_model(spec), *target_models(spec), *liveness_alerts(spec, links)),
        ),
        RuleGroup("vllm-slo-burn", interval, (*direct_windows(spec), *burn_rules(spec, links))),
        RuleGroup("vllm-slo-replicas", outlier_interval(spec), replica_rules(spec, links)),
        *tenant_groups(spec, links),
        RuleGroup(
            "vllm-slo-causes",
            interval,
            (
                *requests_recordings(spec),
                offered_recording(spec),
                *surge_recordings(spec),
                *traffic_alerts(spec, links),
                stalled_alert(spec, links),
            ),
        ),
        RuleGroup(
            "vllm-slo-slow-causes",
            summed_interval(spec),
            (
                *sidecar_recordings(spec),
                surge_before(spec),
                low_traffic_alert(spec, links),
                offered_alert(spec, links),
                busy_but_useless(spec, links),
                *engine_alerts(spec, links),
                *sidecar_alerts(spec, links),
                scrape_interval_alert(spec, links),
            ),
        ),
        *(() if prices is None else cost_groups(spec, prices)),
    )


def render(spec: SloFile, links: Links = DEFAULT_LINKS, prices: Prices | None = None) -> str:
    """The rule file as YAML."""
    return to_yaml(limited(rules(spec, links, prices), MAX_RULES), head(spec))


def head(spec: SloFile) -> tuple[str, ...]:
    """The comments at the head of the rule file."""
    return () if spec.source is Source.SIDECAR else tuple(remarks(spec))
