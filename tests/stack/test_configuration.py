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
from compose.lab import rewrite_config, services
from compose.lab.ports import Ports
from compose.lab.run_directory import RunDirectory
from exporters.relay.connections.client_limit import client_limit
from exporters.sidecar import command as sidecar_command
from exporters.vocabulary.signals import SIGNALS
from tests.support.ports import free_lab_ports
from tests.support.sample_records import finished
from tests.support.sample_traces import MAKER

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (COMPOSE / "Dockerfile").read_text(encoding="utf-8")
EXTRAS = ("sidecar", "loadgen", "tools")
LABELS = {"title", "description", "version", "licenses", "source", "documentation"}


class Overlay(yaml.SafeLoader):
    """A loader for Compose's `!override`, which replaces a value instead of merging it, and `!reset null`."""


def _override(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


Overlay.add_constructor("!override", _override)
Overlay.add_constructor("!reset", lambda _loader, _node: None)


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Overlay)  # noqa: S506 - a SafeLoader with one tag more


def settings(name: str) -> dict[str, str]:
    """The values of a file for Compose."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


FILES = sorted(path.name for path in COMPOSE.glob("compose*.yaml"))
LAB = read(COMPOSE / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = LAB["services"]
GPU, CPU, ENGINES, GPU_ENGINES = (
    read(COMPOSE / f"compose.{name}.yaml")["services"] for name in ("gpu", "cpu", "engines", "engines.gpu")
)
JOBS: dict[str, dict[str, Any]] = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
DAEMONS = [name for name in SERVICES if name != "rules"]
EVERY = pytest.mark.parametrize("name", SERVICES)


def environment(service: dict[str, Any]) -> dict[str, str]:
    values: dict[str, str] = service.get("environment", {})
    return values


def mounts(name: str) -> list[tuple[str, str, str]]:
    """Source, target and mode of each."""
    parts = [re.split(r":(?!-)", str(mount)) for mount in SERVICES[name].get("volumes", [])]
    return [(part[0], part[1], part[2] if len(part) > 2 else "rw") for part in parts]


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_valid_by_the_schema_of_compose(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "tests" / "stack" / "compose-spec.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema)
    document = read(COMPOSE / name)
    document["services"] = {name: service for name, service in document["services"].items() if service}  # not reset
    assert [error.message for error in validator.iter_errors(document)] == []
    next(iter(document["services"].values()))["mem_limits"] = "1g"
    assert [error.message for error in validator.iter_errors(document)] == [
        "'mem_limits' does not match any of the regexes: '^x-'"
    ]


def test_docker_compose_in_the_repository_uses_the_lab_and_git_ignores_the_users_settings() -> None:
    assert read(ROOT / "compose.yaml") == {"name": LAB["name"], "include": ["compose/compose.yaml"]}
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_example_of_settings_has_each_variable_with_its_default() -> None:
    text = "".join((COMPOSE / name).read_text(encoding="utf-8") for name in FILES)
    defaults = dict(re.findall(r"\$\{([A-Z0-9_]+):-([^}]*)\}", text)) | {
        "ROOFLINE": ""
    }  # not the /dev/null in its place
    assert settings(".env.example") == defaults
    without_default = set(re.findall(r"^  +([A-Z0-9_]+):(?: +#.*)?$", text, re.MULTILINE))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert set(re.findall(r"^# ([A-Z0-9_]+)=\S+$", example, re.MULTILINE)) == {"COMPOSE_FILE", *without_default}


def test_every_job_of_ci_has_a_timeout_and_pinned_actions() -> None:
    for name, job in JOBS.items():
        assert job["timeout-minutes"], name
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/none@v0")), step


def test_ci_runs_the_lab_with_all_images_and_keeps_the_logs_of_a_failure() -> None:
    (run,) = [step for step in JOBS["lab"]["steps"] if "run" in step]
    (upload,) = [step for step in JOBS["lab"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert (run["run"], run["env"]) == ("make stack-test", {"REQUIRE_IMAGES": "1"})
    assert (upload["if"], upload["with"]["path"]) == ("failure()", ".lab/stack")


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
    for engine in (SERVICES["simulator"], GPU["vllm"]):
        assert "ports" not in engine
        assert engine["networks"] == ["engine"]
    connected = {name for name in SERVICES if "engine" in SERVICES[name].get("networks", [])}
    assert connected == {"simulator", "sidecar"}


@EVERY
def test_images_are_pinned(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


def test_our_images_have_the_version_of_the_project() -> None:
    version = PROJECT["project"]["version"]
    ours = {service["image"] for service in SERVICES.values() if service["image"].startswith("vllm-slo")}
    assert ours == {f"vllm-slo{name}:{version}" for name in ("", "-loadgen", "-tools")}
    assert f'org.opencontainers.image.version="{version}"' in DOCKERFILE


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
    assert client_limit(SERVICES["sidecar"]["ulimits"]["nofile"]) == 8_144


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
        if source.startswith((".", "$")):
            assert source.startswith("$") or (COMPOSE / source).exists(), source
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
    assert environment(SERVICES["sidecar"])["VLLM_SLO_CHECK_STRUCTURED_OUTPUT"] is None


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


def stage(name: str) -> str:
    """The instructions of a stage of the Dockerfile."""
    (text,) = re.findall(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_image_has_the_environment_of_its_extra_on_the_stripped_base_and_no_other_stage(extra: str) -> None:
    assert f"FROM runtime AS {extra}\n" in DOCKERFILE
    assert re.findall("COPY --from.*", stage(extra)) == [f"COPY --from=build-{extra} /opt/vllm-slo /opt/vllm-slo"]
    assert f"$INSTALL --require-hashes --requirement {extra}.lock\n" in stage(f"build-{extra}")
    assert "$INSTALL --no-deps /dist/*.whl && $SBOM && sh -fc" in stage(f"build-{extra}")
    assert "FROM scratch AS runtime\nCOPY --from=base / /\n" in DOCKERFILE
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", stage("runtime"), re.MULTILINE)
    assert set(re.findall(r"image\.(\w+)=", stage("runtime") + stage(extra))) == LABELS


def test_the_build_names_its_base_by_tag_and_no_package_index() -> None:
    assert re.search(r"^ARG PYTHON=python:\d+\.\d+\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    hosts = set(re.findall(r"https?://([^/:\"]+)", DOCKERFILE))
    assert all(host == "127.0.0.1" or host.endswith("example.org") for host in hosts), hosts
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert re.findall(r"^COPY (\w+) \1$", stage("wheel"), re.MULTILINE) == packages
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == {*packages, "pyproject.toml", "README.md", "LICENSE"}


def test_the_image_of_the_sidecar_listens_where_it_checks_its_health() -> None:
    text = stage("sidecar")
    assert DOCKERFILE.endswith(text)  # the last stage is the default target
    assert "ENV VLLM_SLO_LISTEN=0.0.0.0:8001 VLLM_SLO_METRICS=0.0.0.0:9464\nEXPOSE 8001 9464\n" in text
    (check,) = re.findall(r"^  CMD (\[.*\])$", text, re.MULTILINE)
    assert ["CMD", *json.loads(check)] == SERVICES["sidecar"]["healthcheck"]["test"]
    assert text.endswith('CMD ["sidecar"]\n')


def test_the_sidecar_of_a_real_engine_has_no_roofline_unless_set_because_the_simulators_is_of_another_gpu() -> None:
    roofline = environment(SERVICES["sidecar"])["VLLM_SLO_ROOFLINE"]
    assert GPU["sidecar"] == {
        "environment": {"VLLM_SLO_UPSTREAM": "http://vllm:8000", "VLLM_SLO_ROOFLINE": f"${{ROOFLINE:+{roofline}}}"},
        "volumes": [f"${{ROOFLINE:-/dev/null}}:{roofline}:ro"],
        "depends_on": {"vllm": {"condition": "service_healthy"}},
    }
    assert CPU["sidecar"] == {
        "extends": {"file": "compose.gpu.yaml", "service": "sidecar"},
        "depends_on": GPU["sidecar"]["depends_on"],
    }


def test_a_real_engine_has_the_flags_that_report_the_most_and_a_token_from_a_file() -> None:
    vllm = GPU["vllm"]
    assert CPU["vllm"]["extends"] == {"file": "compose.gpu.yaml", "service": "vllm"}
    for name, service in (("vllm/vllm-openai", vllm), ("vllm/vllm-openai-cpu", CPU["vllm"])):
        assert re.fullmatch(rf"{name}:v\d+\.\d+\.\d+", service["image"])
    for flag in ("--enable-prompt-tokens-details", "--enable-per-request-metrics", "--enable-request-id-headers"):
        assert flag in vllm["command"].split()
    assert vllm["cap_drop"] == ["ALL"]
    assert vllm["healthcheck"]["start_period"] == "30m"
    assert environment(vllm)["HF_TOKEN_PATH"] == f"/run/secrets/{vllm['secrets'][0]}"
    assert LAB["secrets"]["hf_token"] == {"file": "${HF_TOKEN_FILE:-/dev/null}"}


def devices(service: dict[str, Any]) -> Any:
    return service["deploy"]["resources"]["reservations"]["devices"]


def test_each_engine_has_its_gpus_by_id_so_that_an_id_can_be_a_mig_instance() -> None:
    gpus = {"driver": "nvidia", "capabilities": ["gpu"]}
    assert devices(GPU["vllm"]) == [{**gpus, "device_ids": ["${GPU_DEVICES:-all}"]}]
    assert devices(GPU_ENGINES["vllm-2"]) == [{**gpus, "device_ids": ["${GPU_DEVICES_2:-1}"]}]
    assert CPU["vllm"]["deploy"] is None


@pytest.mark.parametrize(
    "second, first, engine",
    [
        pytest.param(ENGINES["sidecar-2"], "compose.yaml", "simulator-2", id="simulator"),
        pytest.param(GPU_ENGINES["sidecar-2"], "compose.gpu.yaml", "vllm-2", id="gpu"),
    ],
)
def test_a_second_engine_has_a_sidecar_of_its_own(second: dict[str, Any], first: str, engine: str) -> None:
    assert second["extends"] == {"file": first, "service": "sidecar"}
    assert environment(second) == {"VLLM_SLO_UPSTREAM": f"http://{engine}:8000"}
    assert second["depends_on"] == {engine: {"condition": "service_healthy"}}
    assert ENGINES["sidecar-2"]["volumes"] == ["requests-2:/var/lib/vllm-slo"]


def test_a_second_engine_has_a_load_generator_of_its_own() -> None:
    assert environment(ENGINES["locust-2"]) == {"LOCUST_HOST": "http://sidecar-2:8001"}


@pytest.mark.parametrize(
    "job, target",
    [
        pytest.param("vllm-slo-sidecar", "sidecar-2:9464", id="the sidecar"),
        pytest.param("vllm-slo-load", "locust-2:9465", id="the load generator"),
    ],
)
def test_prometheus_scrapes_the_programs_of_a_second_engine(job: str, target: str) -> None:
    (mount,) = ENGINES["prometheus"]["volumes"]
    folder, mounted, _ = mount.split(":")
    (scraped,) = [each for each in read(rewrite_config.PROMETHEUS)["scrape_configs"] if each["job_name"] == job]
    (files,) = [Path(file) for config in scraped["file_sd_configs"] for file in config["files"]]
    assert str(files.parent) == mounted == rewrite_config.TARGETS
    assert read(COMPOSE / folder / files.name) == [{"targets": [target]}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "overlays, engines",
    [
        pytest.param((), {"sidecar": "simulator"}, id="by default"),
        pytest.param(("gpu",), {"sidecar": "vllm"}, id="a GPU"),
        pytest.param(("cpu",), {"sidecar": "vllm"}, id="the CPU"),
        pytest.param(("engines",), {"sidecar": "simulator", "sidecar-2": "simulator-2"}, id="two simulators"),
        pytest.param(
            ("gpu", "engines", "engines.gpu"), {"sidecar": "vllm", "sidecar-2": "vllm-2"}, id="two engines on GPUs"
        ),
    ],
)
def test_docker_compose_accepts_every_choice_of_engines(overlays: tuple[str, ...], engines: dict[str, str]) -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("Docker's command with Compose v2 is not installed")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "VLLM_"))}
    clean["COMPOSE_ENV_FILES"] = ".env.example"  # not the user's .env
    if overlays:
        files = ("compose.yaml", *(f"compose.{name}.yaml" for name in overlays))
        clean["COMPOSE_FILE"] = ":".join(f"compose/{name}" for name in files)
        assert f"\n# COMPOSE_FILE={clean['COMPOSE_FILE']}\n" in (ROOT / ".env.example").read_text(encoding="utf-8")
    config = subprocess.run(
        [docker, "compose", "config", "--format", "json"],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert config.returncode == 0, config.stderr
    services = json.loads(config.stdout)["services"]
    locusts = {"locust", "locust-2"} if len(engines) == 2 else {"locust"}
    assert services.keys() == SERVICES.keys() - {"simulator"} | locusts | engines.keys() | set(engines.values())
    for sidecar, engine in engines.items():
        assert services[sidecar]["environment"]["VLLM_SLO_UPSTREAM"] == f"http://{engine}:8000"
        assert services[sidecar]["depends_on"].keys() == {engine}
    volumes = [volume for service in services.values() for volume in service.get("volumes", [])]
    assert all(Path(volume["source"]).exists() for volume in volumes if volume["type"] == "bind")
