"""What every alert says besides that it fires: its name, and where to read on."""

from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

from exporters.quantities import number, spell_duration
from exporters.signals import Label
from exporters.slos import Slo


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
    UNMEASURED = "LLMSLOUnmeasured"
    WATCHDOG = "Watchdog"


@dataclass(frozen=True, slots=True)
class Links:
    """Where runbooks and Grafana are found: a URL, or a path in the repository."""

    runbooks: str = "alerts/runbooks"
    grafana: str = "http://localhost:3000"


_OVERVIEW, _WORKLOAD, _ENGINE, _SIDECAR = (
    "vllm-slo-overview",
    "vllm-slo-workload",
    "vllm-slo-engine",
    "vllm-slo-sidecar",
)

SHOWN_IN: dict[AlertName, tuple[str, str]] = {
    AlertName.BURN: (_OVERVIEW, "Burn rate"),
    AlertName.LOW_TRAFFIC: (_OVERVIEW, "Error budget left"),
    AlertName.TENANT_BURN: (_WORKLOAD, "Goodput by tenant"),
    AlertName.PAGE_HELD: (_OVERVIEW, "Burn rate"),
    AlertName.CLIENT_ERRORS: (_OVERVIEW, "Outcomes"),
    AlertName.REJECTIONS: (_OVERVIEW, "Outcomes"),
    AlertName.BUSY_BUT_USELESS: (_OVERVIEW, "Throughput: output tokens"),
    AlertName.QUEUE: (_ENGINE, "Waiting by reason"),
    AlertName.KV_CACHE: (_ENGINE, "KV cache in use over time"),
    AlertName.PREFIX_CACHE: (_ENGINE, "Prefix cache hits"),
    AlertName.SIDECAR_DOWN: (_SIDECAR, "Sidecar"),
    AlertName.ENGINE_DOWN: (_ENGINE, "Engine"),
    AlertName.ENGINE_STALLED: (_ENGINE, "Output tokens"),
    AlertName.ENGINE_RESTARTS: (_ENGINE, "Restarts in range"),
    AlertName.DROPPING: (_SIDECAR, "Not counted over time"),
    AlertName.LOST: (_SIDECAR, "Not counted over time"),
    AlertName.CERTIFICATE: (_SIDECAR, "Certificate"),
    AlertName.UNMEASURED: (_ENGINE, "Version"),
    AlertName.WATCHDOG: (_OVERVIEW, "Firing alerts"),
}
"""The panel that shows what an alert speaks of: the dashboard's uid and the panel's title."""

CHOSEN_ON: dict[str, tuple[Label, ...]] = {
    _OVERVIEW: (Label.MODEL, Label.CLASS),
    _WORKLOAD: (Label.MODEL, Label.CLASS),
    _ENGINE: (Label.INSTANCE, Label.ENGINE),
    _SIDECAR: (Label.INSTANCE,),
}
"""The variables of each of these dashboards that labels of an alert can set."""


def panel_id(title: str) -> int:
    """Every panel's id is made of its title, so that links to it hold when panels are moved."""
    return crc32(title.encode()) % 1_000_000 + 1


def annotations(name: AlertName, links: Links, summary: str, description: str) -> dict[str, str]:
    """The dashboard opens at the alert's own panel, on its own class, engine or sidecar."""
    return {
        "summary": summary,
        "description": description,
        "runbook_url": f"{links.runbooks.rstrip('/')}/{name}.md",
        "dashboard_url": f"{links.grafana.rstrip('/')}{_panel(*SHOWN_IN[name])}",
    }


def _panel(board: str, title: str) -> str:
    # a label that the alert has not leaves everything chosen; a model's name has slashes
    choices = (
        f"{{{{ with $labels.{each} }}}}&var-{each}={{{{ . | urlquery }}}}{{{{ end }}}}" for each in CHOSEN_ON[board]
    )
    return f"/d/{board}?viewPanel={panel_id(title)}{''.join(choices)}"


def promise(slo: Slo) -> str:
    """The SLO in words: `ttft within 5s for 95 %`."""
    limit = "" if slo.threshold is None else f" within {spell_duration(slo.threshold)}"
    return f"{slo.measure}{limit} for {percent(slo.objective)}"


def percent(share: float) -> str:
    return f"{number(round(100 * share, 2))} %"
