"""The configuration of the container lab, and that of the native lab generated from it."""

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from alerts.rule_file import render
from compose.lab import rewrite_config
from compose.lab.ports import Ports
from compose.lab.run_directory import RunDirectory
from compose.lab.services import LabConfig, load, services, write_configs, write_grafana
from compose.programs.tools import Tools
from exporters.vocabulary import slo_file
from exporters.vocabulary.slo_file import SIDECAR_JOB, Severities
from tests.support.ports import free_lab_ports


@pytest.fixture
def config(tmp_path: Path) -> LabConfig:
    config = LabConfig(directory=RunDirectory(tmp_path), ports=free_lab_ports())
    write_configs(config, render(slo_file.load(config.slos)), Severities())
    return config


NOWHERE = Path("/nowhere")
NO_TOOLS = Tools(prometheus=NOWHERE, promtool=NOWHERE, alertmanager=NOWHERE, amtool=NOWHERE, alertmanager_cwd=None)


def started(config: LabConfig) -> dict[str, tuple[str, ...]]:
    """The command of each service."""
    return {service.name: service.command for service in services(config, NO_TOOLS)}


def check(*command: str | Path) -> str:
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


@pytest.mark.parametrize(
    "source", [rewrite_config.PROMETHEUS, rewrite_config.ALERTMANAGER, *rewrite_config.GRAFANA.glob("*/*.yaml")]
)
def test_no_container_name_remains(source: Path) -> None:
    changes = rewrite_config.replacements(Ports(), rules=Path("/r"), dashboards=Path("/d"))
    text = rewrite_config.rewrite(source, changes)
    assert not [address for address in changes if address in text]


def test_alertmanager_matches_the_severities_of_the_slo_file() -> None:
    changes = rewrite_config.matchers(Severities(page="critical", ticket="warning"))
    text = rewrite_config.rewrite(rewrite_config.ALERTMANAGER, changes)
    named = set(re.findall(r'severity="(\w+)"', text))
    assert named == {
        {"page": "critical", "ticket": "warning"}[each]
        for each in re.findall(r'severity="(\w+)"', rewrite_config.ALERTMANAGER.read_text())
    }


def test_only_addresses_change() -> None:
    rewritten = rewrite_config.rewrite(rewrite_config.PROMETHEUS, {})
    assert yaml.safe_load(rewritten) == yaml.safe_load(rewrite_config.PROMETHEUS.read_text())


def test_the_sidecar_is_scraped_under_the_job_that_its_alert_watches() -> None:
    jobs = yaml.safe_load(rewrite_config.PROMETHEUS.read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert targets[SIDECAR_JOB] == [rewrite_config.CONTAINER["sidecar"]]


def test_prometheus_scrapes_the_metrics_endpoint_of_the_load(config: LabConfig) -> None:
    jobs = yaml.safe_load(config.directory.prometheus_config.read_text())["scrape_configs"]
    command = load(config, "mixed").command
    assert [command[command.index("--metrics") + 1]] in [job["static_configs"][0]["targets"] for job in jobs]


def test_only_services_that_are_started_need_a_port(tmp_path: Path) -> None:
    idle = LabConfig(directory=RunDirectory(tmp_path), ports=Ports())
    assert "load" not in idle.used
    assert "load" in dataclasses.replace(idle, scenario="mixed").used
    external = dataclasses.replace(idle, engine="http://gpu:8000")
    assert external.upstream == "http://gpu:8000"
    assert "engine" not in external.used


def test_prometheus_scrapes_at_the_interval_of_the_slo_file() -> None:
    every = yaml.safe_load(rewrite_config.PROMETHEUS.read_text())["global"]
    spec = slo_file.load(rewrite_config.COMPOSE_DIRECTORY / "slos.yaml")
    assert every["scrape_interval"] == every["evaluation_interval"] == f"{spec.scrape_interval:g}s"


def test_promtool_accepts_the_native_configuration_with_its_rules(tools: Tools, config: LabConfig) -> None:
    output = check(tools.promtool, "check", "config", config.directory.prometheus_config)
    assert "1 rule files found" in output


def test_promtool_accepts_the_containers_configuration(tools: Tools) -> None:
    check(tools.promtool, "check", "config", "--syntax-only", rewrite_config.PROMETHEUS)


def test_amtool_accepts_both_configurations(tools: Tools, config: LabConfig) -> None:
    for file in (rewrite_config.ALERTMANAGER, config.directory.alertmanager_config):
        output = check(tools.amtool, "check-config", file)
        assert "3 receivers" in output


@pytest.mark.parametrize(
    "labels, receiver",
    [
        pytest.param(["severity=page", "slo=ttft"], "page", id="page"),
        pytest.param(["severity=ticket", "slo=ttft"], "ticket", id="ticket"),
        pytest.param(["alertname=VLLMSLOWatchdog", "severity=none"], "heartbeat", id="watchdog"),
        pytest.param(["severity=unheard-of"], "ticket", id="an unknown severity is a ticket"),
    ],
)
def test_alertmanager_sends_each_severity_to_its_receiver(tools: Tools, labels: list[str], receiver: str) -> None:
    flags = (f"--config.file={rewrite_config.ALERTMANAGER}", f"--verify.receivers={receiver}")
    check(tools.amtool, "config", "routes", "test", *flags, *labels)


def test_every_service_stays_on_loopback_and_in_its_folder(config: LabConfig) -> None:
    commands = {name: " ".join(command) for name, command in started(config).items()}
    assert f"--web.listen-address={config.ports.address('prometheus')}" in commands["prometheus"]
    assert f"--storage.tsdb.path={config.directory.root}" in commands["prometheus"]
    assert f"--web.listen-address={config.ports.address('alertmanager')}" in commands["alertmanager"]
    assert "--cluster.listen-address= " in commands["alertmanager"]
    assert not [name for name, command in commands.items() if "0.0.0.0" in command]
    assert f"--listen {config.ports.address('traces')} --trace-file {config.directory.root}" in commands["traces"]


def test_all_spans_go_to_the_trace_store_of_the_lab_unless_another_collector_is_given(config: LabConfig) -> None:
    def flags(config: LabConfig) -> tuple[str, str]:
        command = started(config)["sidecar"]
        return command[command.index("--otlp") + 1], command[command.index("--trace-good") + 1]

    assert flags(config) == (config.ports.url("traces"), "100%")
    assert "traces" in config.used
    other = dataclasses.replace(config, otlp="grpc://collector:4317")
    assert flags(other) == ("grpc://collector:4317", "100%")
    assert "traces" not in {*other.used, *started(other)}


def test_exemplars_of_a_native_grafana_lead_to_the_trace_store(config: LabConfig) -> None:
    def links(config: LabConfig) -> list[dict[str, str]]:
        write_grafana(config, {})
        folder = config.directory.grafana / "provisioning" / "datasources"
        assert [path.name for path in folder.iterdir()] == ["prometheus.yaml"]
        (source,) = yaml.safe_load((folder / "prometheus.yaml").read_text())["datasources"]
        found: list[dict[str, str]] = source["jsonData"].get(rewrite_config.EXEMPLARS, [])
        return found

    url = f"{config.ports.url('traces')}/traces/$${{__value.raw}}"
    assert links(config) == [{"name": "trace_id", "url": url, "urlDisplayLabel": "Trace"}]
    assert links(dataclasses.replace(config, otlp="grpc://collector:4317")) == []
