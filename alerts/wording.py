"""What every alert says besides that it fires: its name, and where to read on."""

from dataclasses import dataclass
from enum import StrEnum

from exporters.slos import Slo
from exporters.yamlfile import number, spell_duration


class AlertName(StrEnum):
    """Every alert; each has a runbook of the same name."""

    BURN = "LLMErrorBudgetBurn"
    LOW_TRAFFIC = "LLMErrorBudgetLowTraffic"
    TENANT_BURN = "LLMTenantErrorBudgetBurn"
    PAGE_HELD = "LLMPageHeldBack"
    CLIENT_ERRORS = "LLMClientErrorSurge"
    REJECTIONS = "LLMRejectionSurge"
    BUSY_BUT_USELESS = "LLMBusyButUseless"
    QUEUE = "LLMQueueSaturated"
    KV_CACHE = "LLMKVCacheFull"
    PREFIX_CACHE = "LLMPrefixCacheCollapse"
    SIDECAR_DOWN = "LLMSidecarDown"
    ENGINE_DOWN = "LLMEngineDown"
    ENGINE_STALLED = "LLMEngineStalled"
    ENGINE_RESTARTS = "LLMEngineRestarts"
    DROPPING = "LLMSidecarDroppingRecords"
    LOST = "LLMSidecarLostRequests"
    CERTIFICATE = "LLMCertificateExpiry"
    WATCHDOG = "Watchdog"


@dataclass(frozen=True, slots=True)
class Links:
    """Where runbooks and Grafana are found: a URL, or a path in the repository."""

    runbooks: str = "alerts/runbooks"
    grafana: str = "http://localhost:3000"


OVERVIEW = "/d/vllm-slo-overview"
# A model's name has slashes, so it is escaped; the names of classes need none.
_ONE_CLASS = "?var-class={{ $labels.class }}{{ with $labels.model }}&var-model={{ . | urlquery }}{{ end }}"


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


def promise(slo: Slo) -> str:
    """The SLO in words: `ttft within 5s for 95 %`."""
    limit = "" if slo.threshold is None else f" within {spell_duration(slo.threshold)}"
    return f"{slo.measure}{limit} for {percent(slo.objective)}"


def percent(share: float) -> str:
    return f"{number(round(100 * share, 2))} %"
