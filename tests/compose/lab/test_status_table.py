"""The live table and its one-line form."""

import io
from dataclasses import replace

from rich.console import Console

from compose.lab import rewrite_config, status_table
from compose.lab.status_table import ClassRow, Snapshot
from exporters.analysis.prometheus_api import Alert
from exporters.vocabulary import slo_file
from exporters.vocabulary.slo_file import Severities

SNAPSHOT = Snapshot(
    seconds=12,
    services={"simulator": True, "sidecar": False},
    rows=(
        ClassRow("siso", 3.0, 12, 0.5, 0.25, 6.4, 0.0),
        ClassRow("lilo", None, None, None, None, None, None),
    ),
    alerts=("page LLMErrorBudgetBurn ttft/siso (fast)", "ticket LLMErrorBudgetLowTraffic ttft/siso"),
    pages=("page firing 12:00:00: LLMErrorBudgetBurn ttft/siso (fast)",),
    addresses={"Prometheus": "http://127.0.0.1:9090"},
)


def test_a_line_has_the_classes_the_pages_and_unhealthy_services() -> None:
    assert status_table.line(SNAPSHOT) == (
        "siso 3.0/s open 12 goodput 50% ttft 250 ms burn 6.4; lilo -/s open - goodput - ttft - burn -; "
        "alerts: page LLMErrorBudgetBurn ttft/siso (fast), 1 other; pages received: 1; unhealthy: sidecar"
    )


def test_the_table_shows_every_service_class_page_and_address() -> None:
    out = io.StringIO()
    Console(file=out, width=120).print(status_table.table(SNAPSHOT))
    for text in ("simulator", "sidecar", "siso", "lilo", "6.4", "50%", "page firing 12:00:00", "http://127.0.0.1:9090"):
        assert text in out.getvalue()


def test_the_alert_that_always_fires_is_not_shown() -> None:
    alerts = [
        Alert("firing", {"alertname": "VLLMSLOWatchdog", "severity": "none"}),
        Alert("pending", {"alertname": "LLMEngineDown", "severity": "page"}),
        Alert("firing", {"alertname": "LLMErrorBudgetBurn", "severity": "ticket", "slo": "ttft", "class": "siso"}),
    ]
    names = ("ticket LLMErrorBudgetBurn ttft/siso", "page LLMEngineDown (pending)")
    assert status_table.alert_names(alerts, Severities()) == names
    named = [replace(each, labels={**each.labels, "severity": each.labels["severity"].upper()}) for each in alerts[1:]]
    assert status_table.alert_names(named, Severities("PAGE", "TICKET")) == names


def test_there_is_a_query_for_every_column() -> None:
    columns = set(ClassRow.__dataclass_fields__) - {"name"}
    assert set(status_table.queries(slo_file.load(rewrite_config.COMPOSE_DIRECTORY / "slos.yaml"))) == columns
