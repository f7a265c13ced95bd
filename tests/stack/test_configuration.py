"""The configuration of the container lab, tested without Docker."""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from alerts.prices import parse_prices
from compose import rewrite_config, services
from compose.ports import Ports
from compose.run_directory import RunDirectory
from exporters.relay.client_limit import client_limit
from exporters.sidecar import command as sidecar_command
from exporters.signals import SIGNALS
from tests.support.ports import free_lab_ports
from tests.support.sample_records import finished
from tests.support.sample_traces import MAKER

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (COMPOSE / "Dockerfile").read_text(encoding="utf-8")


class Overlay(yaml.SafeLoader):
    """A loader for Compose's `!override`, which replaces a mapping instead of merging it."""


def _override(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    return loader.construct_mapping(node, deep=True)


Overlay.add_constructor("!override", _override)


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Overlay)  # noqa: S506 - a SafeLoader with one tag more


LAB = read(COMPOSE / "compose.yaml")
GPU = read(COMPOSE / "compose.gpu.yaml")
SERVICES: dict[str, dict[str, Any]] = LAB["services"]
DAEMONS = [name for name in SERVICES if name != "rules"]
EVERY = pytest.mark.parametrize("name", SERVICES)


def environment(service: dict[str, Any]) -> dict[str, str]:
    values: dict[str, str] = service.get("environment", {})
    return values


def mounts(name: str) -> list[tuple[str, str, str]]:
    """Source, target and mode of each."""
    parts = [str(mount).split(":") for mount in SERVICES[name].get("volumes", [])]
    return [(part[0], part[1], part[2] if len(part) > 2 else "rw") for part in parts]


def test_docker_compose_in_the_repository_uses_the_lab() -> None:
    settings = dict(line.split("=", 1) for line in (ROOT / ".env").read_text().splitlines() if not line.startswith("#"))
    assert settings == {"COMPOSE_FILE": "compose/compose.yaml"}
    assert (ROOT / settings["COMPOSE_FILE"]).is_file()


@EVERY
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}:\d+", port), port


def test_the_published_ports_are_those_of_the_native_lab() -> None:
    published = {
        match["variable"].lower(): (int(match["here"]), int(match["there"]))
        for service in SERVICES.values()
        for port in service.get("ports", [])
        for match in [re.search(r"\{(?P<variable>\w+)_PORT:-(?P<here>\d+)\}:(?P<there>\d+)", port)]
        if match
    }
    native = Ports()
    assert published == {
        **{
            name: (getattr(native, name),) * 2 for name in ("relay", "sidecar", "prometheus", "alertmanager", "grafana")
        },
        "locust": (8089, 8089),
        "tempo": (3200, 3200),
    }


def test_the_engine_publishes_no_port_and_shares_its_network_only_with_the_sidecar() -> None:
    assert "ports" not in SERVICES["simulator"]
    assert SERVICES["simulator"]["networks"] == ["engine"]
    assert [name for name in SERVICES if "engine" in SERVICES[name].get("networks", [])] == ["simulator", "sidecar"]


@EVERY
def test_images_are_pinned(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


def test_our_image_has_the_version_of_the_project() -> None:
    ours = {service["image"] for service in SERVICES.values() if service["image"].startswith("vllm-slo:")}
    assert ours == {f"vllm-slo:{PROJECT['project']['version']}"}


@EVERY
def test_containers_run_with_least_privilege(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "devices"} & service.keys()
    assert service["mem_limit"]
    assert service["pids_limit"]


def test_the_sidecar_may_open_two_descriptors_for_each_of_many_clients() -> None:
    descriptors = SERVICES["sidecar"]["ulimits"]["nofile"]
    assert client_limit(descriptors) == 8_144


@pytest.mark.parametrize("name", DAEMONS)
def test_every_daemon_has_a_health_check_and_restarts(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert check["start_period"]
    assert SERVICES[name]["restart"] == "unless-stopped"


@EVERY
def test_a_service_waits_until_its_dependencies_are_healthy(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        done = "service_completed_successfully" if needed == "rules" else "service_healthy"
        assert how == {"condition": done}, needed


@EVERY
def test_bind_mounts_exist_and_are_read_only_and_volumes_are_declared(name: str) -> None:
    for source, target, mode in mounts(name):
        if source.startswith("."):
            assert (COMPOSE / source).exists(), source
            assert mode == "ro", target
        else:
            assert source in LAB["volumes"]


def test_the_addresses_in_the_configuration_files_are_those_of_the_services() -> None:
    there = {name: urlsplit(f"//{address}") for name, address in rewrite_config.CONTAINER.items()}
    assert {address.hostname for address in there.values()} <= SERVICES.keys()
    sidecar = environment(SERVICES["sidecar"])
    assert sidecar["VLLM_SLO_UPSTREAM"] == f"http://{rewrite_config.CONTAINER['engine']}"
    assert environment(SERVICES["simulator"])["VLLM_SLO_LISTEN"] == f"0.0.0.0:{there['engine'].port}"
    assert sidecar["VLLM_SLO_LISTEN"] == f"0.0.0.0:{there['relay'].port}"
    assert sidecar["VLLM_SLO_METRICS"] == f"0.0.0.0:{there['sidecar'].port}"
    assert f"--listen=0.0.0.0:{there['webhook'].port}" in SERVICES["webhook"]["command"]
    locust = environment(SERVICES["locust"])
    assert locust["LOCUST_HOST"] == f"http://{rewrite_config.CONTAINER['relay']}"
    assert locust["VLLM_SLO_METRICS"] == f"0.0.0.0:{there['load'].port}"


@pytest.mark.parametrize("name", ["rules", "sidecar", "locust"])
def test_one_slo_file_judges_alerts_and_grades(name: str) -> None:
    assert ("./slos.yaml", "/etc/vllm-slo/slos.yaml", "ro") in mounts(name)
    text = json.dumps([SERVICES[name].get("entrypoint"), environment(SERVICES[name])])
    assert "/etc/vllm-slo/slos.yaml" in text


def test_the_environment_of_the_sidecar_matches_its_flags() -> None:
    parser = argparse.ArgumentParser()
    sidecar_command.configure(parser)
    flags = {f"VLLM_SLO_{action.dest.upper()}" for action in parser._actions}
    assert environment(SERVICES["sidecar"]).keys() <= flags


def test_the_sidecar_has_the_roofline_of_the_simulator_as_in_the_native_lab() -> None:
    settings = environment(SERVICES["sidecar"])
    (source,) = [source for source, target, _ in mounts("sidecar") if target == settings["VLLM_SLO_ROOFLINE"]]
    assert (COMPOSE / source).resolve() == services.ROOFLINE


def test_config_changes_and_the_request_log_survive_a_new_container() -> None:
    settings = environment(SERVICES["sidecar"])
    volumes = {target for source, target, _ in mounts("sidecar") if source in LAB["volumes"]}
    assert {str(Path(settings[name]).parent) for name in ("VLLM_SLO_STATE", "VLLM_SLO_REQUEST_LOG")} <= volumes


def test_the_shell_can_make_the_sidecar_check_structured_output() -> None:
    name = "VLLM_SLO_CHECK_STRUCTURED_OUTPUT"
    assert environment(SERVICES["sidecar"])[name] is None
    assert f"`{name}=true`" in (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")


def test_prometheus_reads_the_rendered_rules() -> None:
    (rule_file,) = re.findall(r"> (\S+)$", SERVICES["rules"]["entrypoint"][-1])
    (folder,) = [target for source, target, _ in mounts("prometheus") if source == "rules"]
    assert SERVICES["rules"]["working_dir"] in [target for source, target, _ in mounts("rules") if source == "rules"]
    patterns = read(rewrite_config.PROMETHEUS)["rule_files"]
    assert any(fnmatch.fnmatchcase(f"{folder}/{rule_file}", pattern) for pattern in patterns)


def test_the_rules_have_the_prices_of_the_native_lab() -> None:
    words = SERVICES["rules"]["entrypoint"][-1].split()
    hour, api = (words[words.index(flag) + 1] for flag in ("--gpu-hour-price", "--api-price"))
    assert parse_prices(float(hour), None, api) == services.PRICES


def test_grafana_finds_its_data_source() -> None:
    source = read(rewrite_config.GRAFANA / "datasources" / "prometheus.yaml")
    assert source["apiVersion"] == 1
    (prometheus,) = source["datasources"]
    assert prometheus["type"] == "prometheus"
    assert prometheus["url"] == f"http://{rewrite_config.CONTAINER['prometheus']}"
    assert prometheus["uid"]
    assert prometheus["jsonData"]["timeInterval"] == read(COMPOSE / "slos.yaml")["scrape_interval"]


def test_exemplars_lead_to_tempo_which_receives_the_spans_of_the_sidecar() -> None:
    (prometheus,) = read(rewrite_config.DATA_SOURCE)["datasources"]
    (tempo,) = read(rewrite_config.TEMPO)["datasources"]
    settings = read(COMPOSE / "tempo" / "tempo.yaml")
    assert prometheus["jsonData"][rewrite_config.EXEMPLARS] == [{"name": "trace_id", "datasourceUid": tempo["uid"]}]
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]
    assert tempo["type"] == "tempo"
    assert tempo["url"] == f"http://tempo:{settings['server']['http_listen_port']}"
    port = settings["distributor"]["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
    assert environment(SERVICES["sidecar"])["VLLM_SLO_OTLP"] == f"${{VLLM_SLO_OTLP:-http://tempo:{port}}}"
    assert environment(SERVICES["sidecar"])["VLLM_SLO_TRACE_GOOD"] == "100%"


def test_the_sidecar_does_not_wait_for_tempo() -> None:
    assert "tempo" not in SERVICES["sidecar"]["depends_on"]
    assert SERVICES["tempo"]["networks"] == SERVICES["grafana"]["networks"] == ["lab"]


def test_tempo_writes_only_to_its_volume_and_deletes_old_blocks() -> None:
    (folder,) = [target for source, target, _ in mounts("tempo") if source == "tempo"]
    settings = read(COMPOSE / "tempo" / "tempo.yaml")
    paths = [
        settings["backend_scheduler"]["local_work_path"],
        settings["live_store"]["shutdown_marker_dir"],
        settings["live_store"]["wal"]["path"],
        settings["storage"]["trace"]["wal"]["path"],
        settings["storage"]["trace"]["local"]["path"],
    ]
    assert all(path.startswith(f"{folder}/") for path in paths)
    planned = settings["backend_scheduler"]["provider"]["compaction"]["compaction"]["block_retention"]
    assert planned == settings["backend_worker"]["compaction"]["block_retention"] == "24h"
    assert settings["usage_report"] == {"reporting_enabled": False}
    file = next(word for word in SERVICES["tempo"]["command"] if word.startswith("-config.file="))
    assert file.partition("=")[2] in [target for _, target, _ in mounts("tempo")]


def test_traces_lead_to_series_that_exist_by_labels_that_they_have() -> None:
    (tempo,) = read(rewrite_config.TEMPO)["datasources"]
    (prometheus,) = read(rewrite_config.DATA_SOURCE)["datasources"]
    links = tempo["jsonData"]["tracesToMetrics"]
    assert links["datasourceUid"] == prometheus["uid"]
    by_name = {signal.name: signal for signal in SIGNALS}
    for query in links["queries"]:
        (name,) = re.findall(r"(llm_\w+?)(?:_bucket)?\{\$\$__tags\}", query["query"])  # Grafana replaces single dollars
        assert {tag["value"] for tag in links["tags"]} <= {str(label) for label in by_name[name].labels}
    record = finished(trace_id="1" * 32, span_id="2" * 16)
    (span,) = MAKER.spans(record)
    assert {tag["key"] for tag in links["tags"]} <= (span.attributes or {}).keys()


def test_grafana_finds_the_generated_dashboards() -> None:
    provisioned = read(rewrite_config.GRAFANA / "dashboards" / "vllm-slo.yaml")
    assert provisioned["apiVersion"] == 1
    (provider,) = provisioned["providers"]
    targets = {target: source for source, target, _ in mounts("grafana")}
    generated = (COMPOSE / targets[provider["options"]["path"]]).resolve()
    boards = [json.loads(path.read_text(encoding="utf-8")) for path in generated.glob("*.json")]
    assert boards
    for board in boards:
        assert board["uid"]
        variables = {variable["name"]: variable for variable in board["templating"]["list"]}
        assert variables["datasource"]["query"] == "prometheus"
    assert (COMPOSE / targets["/etc/grafana/provisioning"]).resolve() == rewrite_config.GRAFANA


def test_grafana_has_the_settings_of_the_native_lab_and_login_is_disabled(tmp_path: Path) -> None:
    config = services.LabConfig(directory=RunDirectory(tmp_path), ports=free_lab_ports())
    native = services.grafana_server(config, "/usr/sbin/grafana").env or {}
    wanted = {
        name: value
        for name, value in native.items()
        if name.startswith("GF_") and name not in os.environ and not name.startswith(("GF_PATHS_", "GF_SERVER_"))
    }
    settings = environment(SERVICES["grafana"])
    assert wanted.items() <= settings.items()
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"
    assert settings["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"


def test_the_image_is_built_in_two_stages_from_the_lock_file() -> None:
    assert re.findall(r"^FROM (.+)$", DOCKERFILE, re.MULTILINE) == ["${PYTHON} AS build", "${PYTHON}"]
    assert re.search(r"^ARG PYTHON=python:\d+\.\d+\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    assert "--require-hashes --requirement requirements.lock" in DOCKERFILE
    assert "--no-build-isolation --no-deps ." in DOCKERFILE
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", DOCKERFILE, re.MULTILINE)
    assert "http" not in DOCKERFILE  # no index address


def test_the_image_has_every_package_and_no_development_tools() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE) == packages
    tools = {re.split(r"[><=~]", tool)[0] for tool in PROJECT["dependency-groups"]["dev"]}
    tools |= {"babel", "mkdocs", "pymdown-extensions"}  # the largest dependencies of mkdocs-material
    tools -= {"h11"}  # also a dependency of Locust: socketio -> wsproto -> h11
    removed = re.search(r"uninstall --quiet --yes \\\n(.+)$", DOCKERFILE, re.MULTILINE)
    assert removed
    assert set(removed[1].split()) == tools | {"pip"}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == {*packages, "pyproject.toml", "requirements.lock", "README.md", "LICENSE"}


def test_on_a_gpu_vllm_replaces_the_simulator() -> None:
    overlay = GPU["services"]
    vllm = overlay["vllm"]
    assert overlay["simulator"]["profiles"]  # so that `up` does not start it
    # the roofline of the simulator is that of another GPU
    roofline = environment(SERVICES["sidecar"])["VLLM_SLO_ROOFLINE"]
    assert overlay["sidecar"]["environment"] == {
        "VLLM_SLO_UPSTREAM": "http://vllm:8000",
        "VLLM_SLO_ROOFLINE": f"${{ROOFLINE:+{roofline}}}",
    }
    assert overlay["sidecar"]["volumes"] == [f"${{ROOFLINE:-/dev/null}}:{roofline}:ro"]
    assert overlay["sidecar"]["depends_on"] == {"vllm": {"condition": "service_healthy"}}
    assert re.fullmatch(r"vllm/vllm-openai:v\d+\.\d+\.\d+", vllm["image"])
    for flag in ("--enable-prompt-tokens-details", "--enable-per-request-metrics", "--enable-request-id-headers"):
        assert flag in vllm["command"].split()
    assert "ports" not in vllm
    assert vllm["networks"] == ["engine"]
    assert vllm["cap_drop"] == ["ALL"]
    assert vllm["healthcheck"]["start_period"] == "30m"


@pytest.mark.parametrize(
    "files, engine",
    [
        pytest.param([], "simulator", id="the lab"),
        pytest.param(["-f", "compose/compose.yaml", "-f", "compose/compose.gpu.yaml"], "vllm", id="on a GPU"),
    ],
)
def test_docker_compose_accepts_the_files(files: list[str], engine: str) -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("Docker's command with Compose v2 is not installed")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "VLLM_"))}
    run = subprocess.run(
        [docker, "compose", *files, "config", "--services"],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert run.returncode == 0, run.stderr
    assert set(run.stdout.split()) == (SERVICES.keys() - {"simulator"}) | {engine}
