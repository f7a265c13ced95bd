"""The annotations of an alert, and how its texts write an SLO and a share."""

from alerts.alert_names import AlertName
from alerts.links import Links
from exporters.quantities import number, spell_duration
from exporters.slos import Slo


def annotations(name: AlertName, links: Links, summary: str, description: str) -> dict[str, str]:
    return {
        "summary": summary,
        "description": description,
        "runbook_url": links.runbook(name),
        "dashboard_url": links.dashboard(name),
    }


def describe(slo: Slo) -> str:
    """The SLO in words: `ttft within 5s for 95 %`."""
    limit = "" if slo.threshold is None else f" within {spell_duration(slo.threshold)}"
    return f"{slo.measure}{limit} for {percent(slo.objective)}"


def percent(share: float) -> str:
    return f"{number(round(100 * share, 2))} %"
