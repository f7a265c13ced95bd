"""Adapts the container lab's configuration files to the addresses and folders of the native lab."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from alerts.labels import severity_value
from alerts.tiers import Severity
from compose.lab.ports import Ports
from exporters.vocabulary.slo_file import Severities

COMPOSE_DIRECTORY = Path(__file__).parents[1]
PROMETHEUS = COMPOSE_DIRECTORY / "prometheus" / "prometheus.yml"
ALERTMANAGER = COMPOSE_DIRECTORY / "alertmanager" / "alertmanager.yml"
GRAFANA = COMPOSE_DIRECTORY / "grafana" / "provisioning"
DATA_SOURCE = GRAFANA / "datasources" / "prometheus.yaml"
TEMPO = GRAFANA / "datasources" / "tempo.yaml"
"""Parts of the container lab only: the native lab has `vllm-slo traces`, which is not a data source of Grafana."""

EXEMPLARS = "exemplarTraceIdDestinations"

# The addresses of the container lab, by service name in the native lab.
CONTAINER = {
    "engine": "simulator:8000",
    "relay": "sidecar:8001",
    "sidecar": "sidecar:9464",
    "prometheus": "prometheus:9090",
    "alertmanager": "alertmanager:9093",
    "webhook": "webhook:9095",
    "load": "locust:9465",
    "grafana": "grafana:3000",
}
RULES = "/etc/prometheus/rules"
TARGETS = "/etc/prometheus/targets"
DASHBOARDS = "/etc/grafana/dashboards"


def replacements(ports: Ports, *, rules: Path, dashboards: Path) -> dict[str, str]:
    """The native lab's address or folder, by that of the container lab."""
    return {
        **{address: ports.address(service) for service, address in CONTAINER.items()},
        RULES: str(rules.absolute()),
        TARGETS: str(rules.absolute().with_name("targets")),  # of further engines, which only the container lab has
        DASHBOARDS: str(dashboards.absolute()),
    }


def matchers(severities: Severities) -> dict[str, str]:
    """The native lab's matchers of severities, by those of the container lab."""

    def matcher(values: Severities, severity: Severity) -> str:
        return f'severity="{severity_value(values, severity)}"'

    return {matcher(Severities(), each): matcher(severities, each) for each in (Severity.PAGE, Severity.TICKET)}


def rewrite(source: Path, changes: Mapping[str, str]) -> str:
    """The YAML of `source` with every key of `changes` replaced by its value."""
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    text = yaml.safe_dump(_replace(document, changes), sort_keys=False)
    return f"# generated from {source.name} of the container lab\n{text}"


def link_exemplars(text: str, trace_store: str | None) -> str:
    """The data source of Prometheus with exemplars that lead to the trace store, or with None to nothing."""
    document = yaml.safe_load(text)
    for source in document["datasources"]:
        destinations = source["jsonData"].pop(EXEMPLARS)
        if trace_store is not None:
            # Grafana replaces variables of the environment, unless the dollar sign is doubled.
            url = f"{trace_store}/traces/$${{__value.raw}}"
            links = [{"name": each["name"], "url": url, "urlDisplayLabel": "Trace"} for each in destinations]
            source["jsonData"][EXEMPLARS] = links
    return yaml.safe_dump(document, sort_keys=False)


def _replace(value: Any, changes: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {key: _replace(item, changes) for key, item in value.items()}
        case list():
            return [_replace(item, changes) for item in value]
        case str():
            for container, native in changes.items():
                value = value.replace(container, native)
            return value
        case _:
            return value
