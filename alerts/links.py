"""Links from an alert to its runbook and dashboard panel; dashboards use the uids and panel titles declared here."""

import argparse
from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

from alerts.labels import POOL
from exporters.text.addresses import parse_url
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label


class DashboardUid(StrEnum):
    """Every dashboard; links and bookmarks depend on these."""

    OVERVIEW = "vllm-slo-overview"
    OBJECTIVE = "vllm-slo-objective"
    WORKLOAD = "vllm-slo-workload"
    REQUESTS = "vllm-slo-requests"
    ENGINE = "vllm-slo-engine"
    FLEET = "vllm-slo-fleet"
    SIDECAR = "vllm-slo-sidecar"
    CONFIG_CHANGE = "vllm-slo-flips"
    LOAD_TEST = "vllm-slo-load"
    ENGINE_ONLY = "vllm-slo-engine-only"


class PanelTitle(StrEnum):
    """Every panel that an alert links to."""

    BAD_BY_ENGINE = "Bad events by engine"
    BURN_RATE = "Burn rate"
    CERTIFICATE = "Certificate"
    CONNECTIONS = "Client connections"
    ENGINE = "Engine"
    ENGINE_OUTPUT_TOKENS = "Output tokens"
    FIRING_ALERTS = "Firing alerts"
    FOLLOW_LAG = "Lag of the followed log"
    GOODPUT_BY_SIDECAR = "Goodput by sidecar"
    GOODPUT_BY_TENANT = "Goodput by tenant in range"
    GPU_THROTTLING = "GPU throttling"
    GPU_XID = "Last Xid error of each GPU"
    KV_CACHE = "KV cache in use over time"
    NOT_COUNTED = "Not counted over time"
    OFFERED = "Throughput: requests offered"
    OUTCOMES = "Outcomes"
    PREFIX_CACHE = "Prefix cache hits"
    RESTARTS = "Restarts in range"
    SIDECAR = "Sidecar"
    SLO_FILE = "SLO file"
    SLO_STATUS = "SLO status"
    SPANS_DROPPED = "Spans dropped"
    TASK_ERRORS = "Task errors"
    THROUGHPUT = "Throughput: output tokens"
    WAITING = "Waiting by reason"


Panel = tuple[DashboardUid, PanelTitle]
"""The panel that shows the cause of an alert."""

LINK_VARIABLES: dict[DashboardUid, tuple[Label, ...]] = {
    DashboardUid.OVERVIEW: (Label.MODEL, Label.CLASS),
    DashboardUid.OBJECTIVE: (Label.MODEL, Label.CLASS, Label.SLO),
    DashboardUid.WORKLOAD: (Label.MODEL, Label.CLASS),
    DashboardUid.ENGINE: (Label.INSTANCE, Label.ENGINE),
    DashboardUid.SIDECAR: (Label.INSTANCE,),
    DashboardUid.FLEET: (),  # all replicas, to compare them
    DashboardUid.ENGINE_ONLY: (Label.MODEL, Label.INSTANCE),
}
"""The variables of each linked dashboard that labels of an alert can set."""


_WITHOUT_SIDECAR = {
    PanelTitle.GOODPUT_BY_SIDECAR: PanelTitle.BAD_BY_ENGINE,
    PanelTitle.SIDECAR: PanelTitle.ENGINE,
}
"""Panels that show what only a sidecar knows, and those in their place."""


def without_sidecar(panel: Panel) -> Panel:
    """The panel of an alert on the dashboard of engines without a sidecar."""
    _, title = panel
    return DashboardUid.ENGINE_ONLY, _WITHOUT_SIDECAR.get(title, title)


def panel_id(title: str) -> int:
    """Depends only on the title, so that links stay valid when panels are moved."""
    return crc32(title.encode()) % 1_000_000 + 1


def add_link_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of the links that alerts and dashboards have."""
    parser.add_argument(
        "--runbooks",
        default="",
        metavar="URL",
        help="base of links to runbooks: URL/NAME.md (default: no links)",
    )
    parser.add_argument(
        "--traces-url",
        default="",
        metavar="URL",
        help="address of `vllm-slo traces`: link to the traces of bad requests (default: none)",
    )


@dataclass(frozen=True, slots=True)
class Links:
    """The base URLs of runbooks and of Grafana; empty for alerts without a link there."""

    runbooks: str = ""
    grafana: str = ""
    traces: str = ""
    """The base of `vllm-slo traces`; empty for alerts without a link to traces."""

    def annotations(self, name: AlertName, panel: Panel) -> dict[str, str]:
        """The command that prints the runbook of an alert, and the links that have a base URL."""
        runbook = {"runbook_url": f"{self.runbook_base()}/{name}.md"} if self.runbooks else {}
        dashboard = {"dashboard_url": self._dashboard(name, panel)} if self.grafana else {}
        return {"runbook": f"vllm-slo alerts runbook {name}", **runbook, **dashboard}

    def runbook_base(self) -> str:
        """The URL without a slash at its end."""
        return self.runbooks.rstrip("/")

    def bad_traces(self) -> dict[str, str]:
        """The link to the traces of the bad requests of the last hour, of the class and model of the alert."""
        one_class = _unless_pooled("class={{ $labels.class | urlquery }}&")
        query = f"{one_class}model={{{{ $labels.model | urlquery }}}}&verdict=bad&since=1h"
        return {"traces_url": f"{self.traces.rstrip('/')}/?{query}"} if self.traces else {}

    def _dashboard(self, name: AlertName, panel: Panel) -> str:
        """A link to the alert's panel, with the dashboard variables set from the labels of the alert."""
        uid, title = panel
        # A variable without a label on the alert stays at All. Model names contain slashes.
        variables = (_variable(name, label) for label in LINK_VARIABLES[uid])
        return f"{self.grafana.rstrip('/')}/d/{uid}?viewPanel={panel_id(title)}{''.join(variables)}"


def read_links(runbooks: str, grafana: str, traces: str) -> Links:
    """The links of the flags, each of which may be empty.

    Raises:
        UsageError: one is not a URL; the message has its flag.
    """
    for flag, url, example in (
        ("--runbooks", runbooks, "the folder of the runbooks, such as https://git.example.com/ops/runbooks"),
        ("--grafana", grafana, "the address of Grafana in a browser, such as https://grafana.example.com"),
        ("--traces-url", traces, "the address of `vllm-slo traces`, such as https://traces.example.com"),
    ):
        if url:
            parse_url(flag, url, example)
    return Links(runbooks, grafana, traces)


def _variable(name: AlertName, label: Label) -> str:
    text = f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}"
    return _unless_pooled(text) if (name, label) == (AlertName.BURN, Label.CLASS) else text


def _unless_pooled(text: str) -> str:
    """Omitted for an alert on several classes, as no panel and no trace has its class."""
    return f'{{{{ if ne $labels.class "{POOL}" }}}}{text}{{{{ end }}}}'
