"""The whole rule file of an SLO file: recording rules, burn-rate alerts, liveness alerts."""

from alerts.burn import burn_alerts
from alerts.liveness import liveness_alerts
from alerts.recording import recording_groups
from alerts.rule import RuleGroup, to_yaml
from alerts.windows import alert_interval
from alerts.wording import Links
from exporters.slos import SloFile

DEFAULT_LINKS = Links()


def rules(spec: SloFile, links: Links = DEFAULT_LINKS) -> tuple[RuleGroup, ...]:
    """Recording groups, then alerts in groups of their own, so that a slow sum never delays them."""
    every = alert_interval(spec)
    return (
        *recording_groups(spec),
        RuleGroup("vllm-slo-burn-alerts", every, burn_alerts(spec, links)),
        RuleGroup("vllm-slo-liveness-alerts", every, liveness_alerts(spec, links)),
    )


def render(spec: SloFile, links: Links = DEFAULT_LINKS) -> str:
    """The rule file as YAML."""
    return to_yaml(rules(spec, links))
