"""What every alert says besides that it fires: its name, and where to read on."""

from dataclasses import dataclass
from enum import StrEnum


class AlertName(StrEnum):
    """Every alert; each has a runbook of the same name."""

    BURN = "LLMErrorBudgetBurn"
    LOW_TRAFFIC = "LLMErrorBudgetLowTraffic"
    SIDECAR_DOWN = "LLMSidecarDown"
    ENGINE_DOWN = "LLMEngineDown"
    ENGINE_STALLED = "LLMEngineStalled"
    DROPPING = "LLMSidecarDroppingRecords"
    WATCHDOG = "Watchdog"


@dataclass(frozen=True, slots=True)
class Links:
    """Where runbooks and Grafana are found: a URL, or a path in the repository."""

    runbooks: str = "alerts/runbooks"
    grafana: str = "http://localhost:3000"


OVERVIEW = "/d/vllm-slo-overview"
# A model's name has slashes, so it is escaped; the names of classes need none.
_ONE_CLASS = "?var-model={{ $labels.model | urlquery }}&var-class={{ $labels.class }}"


def annotations(
    name: AlertName, links: Links, summary: str, description: str, *, one_class: bool = False
) -> dict[str, str]:
    """`one_class` opens the dashboard on the alert's own model and class."""
    return {
        "summary": summary,
        "description": description,
        "runbook_url": f"{links.runbooks.rstrip('/')}/{name}.md",
        "dashboard_url": f"{links.grafana.rstrip('/')}{OVERVIEW}{_ONE_CLASS if one_class else ''}",
    }
