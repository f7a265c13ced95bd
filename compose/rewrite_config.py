"""Turns the container lab's configuration into the native one: the same files, other addresses and folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from compose.ports import Ports

ROOM = Path(__file__).parent
PROMETHEUS = ROOM / "prometheus" / "prometheus.yml"
ALERTMANAGER = ROOM / "alertmanager" / "alertmanager.yml"
GRAFANA = ROOM / "grafana" / "provisioning"

# The addresses of the container lab, by the native lab's name of the service.
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
DASHBOARDS = "/etc/grafana/dashboards"


def places(ports: Ports, *, rules: Path, dashboards: Path) -> dict[str, str]:
    """What stands in the containers' files, and what stands in its place here."""
    return {
        **{there: ports.address(service) for service, there in CONTAINER.items()},
        RULES: str(rules.absolute()),
        DASHBOARDS: str(dashboards.absolute()),
    }


def localised(source: Path, where: Mapping[str, str]) -> str:
    """The YAML of `source` with every place of `where` replaced."""
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    return (
        f"# made from {source.name} of the container lab\n{yaml.safe_dump(_replaced(document, where), sort_keys=False)}"
    )


def _replaced(value: Any, where: Mapping[str, str]) -> Any:
    match value:
        case dict():
            return {key: _replaced(item, where) for key, item in value.items()}
        case list():
            return [_replaced(item, where) for item in value]
        case str():
            for there, here in where.items():
                value = value.replace(there, here)
            return value
        case _:
            return value
