"""The services of the native lab: their commands and readiness URLs."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import dashboards
from alerts.prices import ApiPrice, Prices
from compose.lab import rewrite_config
from compose.lab.ports import HOST, Ports
from compose.lab.run_directory import RunDirectory
from compose.processes.child_processes import Service
from compose.programs.tools import Tools
from compose.vllm_cpu import launch
from compose.vllm_cpu.install import VllmCpu
from exporters.vocabulary.slo_file import Severities

# `-P`: modules in the working directory must not shadow ours.
OURS = (sys.executable, "-P", "-c", "from compose.console_script import main; raise SystemExit(main())")
PREVIEW_SCRAPES = "5s"
"""Five times the lab's interval, because a rate over four scrapes would show only spikes at this traffic."""

ROOFLINE = rewrite_config.COMPOSE_DIRECTORY / "simulator" / "roofline.json"
"""The output of `vllm-slo roofline` for the simulated GPU and model."""

PRICES = Prices(hour=0.8, api=ApiPrice(prompt=0.15, cached=0.075, completion=0.6))
"""Example prices, of no real provider."""

DASHBOARDS = Path(dashboards.__file__).parent / "generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabConfig:
    """One run of the lab, with the engine at the URL `engine`, else `vllm`, else a simulator."""

    directory: RunDirectory
    ports: Ports
    slos: Path = rewrite_config.COMPOSE_DIRECTORY / "slos.yaml"
    engine: str | None = None
    vllm: VllmCpu | None = None
    simulator: tuple[str, ...] = ()
    scenario: str | None = None
    load: tuple[str, ...] = ()
    otlp: str | None = None
    pictures: bool = False

    @property
    def upstream(self) -> str:
        return self.engine or self.ports.url("engine")

    @property
    def collector(self) -> str:
        """The endpoint for spans: the given one, else the trace store of the lab."""
        return self.otlp or self.ports.url("traces")

    @property
    def used(self) -> tuple[str, ...]:
        """The services whose ports must be free."""
        always = ("relay", "sidecar", "prometheus", "alertmanager", "webhook", "grafana")
        others = {"engine": not self.engine, "load": self.scenario, "traces": self.otlp is None}
        return (*always, *(name for name, wanted in others.items() if wanted))


def write_configs(config: LabConfig, rules: str, severities: Severities) -> None:
    """Write the configuration of Prometheus, Alertmanager and Grafana."""
    directory = config.directory
    changes = rewrite_config.replacements(config.ports, rules=directory.rules, dashboards=DASHBOARDS)
    directory.rules.mkdir(parents=True)
    (directory.rules / "slo.yml").write_text(rules, encoding="utf-8")
    directory.prometheus_config.write_text(rewrite_config.rewrite(rewrite_config.PROMETHEUS, changes), encoding="utf-8")
    directory.alertmanager_config.write_text(
        rewrite_config.rewrite(rewrite_config.ALERTMANAGER, changes | rewrite_config.matchers(severities)),
        encoding="utf-8",
    )
    directory.traces.mkdir()
    if shutil.which("grafana"):
        write_grafana(config, changes)


def write_grafana(config: LabConfig, changes: Mapping[str, str]) -> None:
    trace_store = None if config.otlp else config.ports.url("traces")
    for source in rewrite_config.GRAFANA.glob("*/*.yaml"):
        if source == rewrite_config.TEMPO:
            continue
        text = rewrite_config.rewrite(source, changes)
        if source == rewrite_config.DATA_SOURCE:
            text = rewrite_config.link_exemplars(text, trace_store)
        target = config.directory.grafana / "provisioning" / source.relative_to(rewrite_config.GRAFANA)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def services(config: LabConfig, tools: Tools) -> tuple[Service, ...]:
    """All services except the load, in start order."""
    vllm = config.vllm and launch.service(config.vllm, HOST, config.ports.engine, otlp=config.otlp)
    engine = () if config.engine else (vllm or simulator(config),)
    grafana_program = shutil.which("grafana")
    return (
        alertmanager(config, tools),
        prometheus(config, tools),
        *engine,
        *(() if config.otlp else (traces(config),)),
        sidecar(config),
        grafana_server(config, grafana_program) if grafana_program else preview(config),
    )


def simulator(config: LabConfig) -> Service:
    ports = config.ports
    return Service(
        name="simulator",
        command=(*OURS, "simulate", "--listen", ports.address("engine"), *config.simulator),
        ready_url=ports.url("engine") + "/health",
    )


def sidecar(config: LabConfig) -> Service:
    ports = config.ports
    flags = {
        "--upstream": config.upstream,
        "--listen": ports.address("relay"),
        "--metrics": ports.address("sidecar"),
        "--slos": str(config.slos),
        "--request-log": str(config.directory.request_log),
        "--drain-delay": "0s",  # no load balancer has to notice
        "--drain": "5s",  # short, because the load stops first and the requests still open can take minutes
        "--linger": "0s",  # Prometheus stops with the lab
        "--otlp": config.collector,
        "--trace-good": "100%",
    }
    if not config.engine:
        # The same in every recording, whatever the host is called.
        flags["--engine-name"] = f"{config.upstream}={ports.address('engine')}"
    if not config.engine and not config.vllm:
        flags["--roofline"] = str(ROOFLINE)
    ready = ports.url("sidecar") + "/readyz"
    return Service(name="sidecar", command=ours(flags, "sidecar"), ready_url=ready, grace=25)


def traces(config: LabConfig) -> Service:
    ports = config.ports
    flags = {"--listen": ports.address("traces"), "--trace-file": str(config.directory.traces / "traces.db")}
    return Service(name="traces", command=ours(flags, "traces"), ready_url=ports.url("traces") + "/healthz")


def prometheus(config: LabConfig, tools: Tools) -> Service:
    ports, directory = config.ports, config.directory
    flags = (
        f"--config.file={directory.prometheus_config}",
        f"--storage.tsdb.path={directory.prometheus_data}",
        f"--web.listen-address={ports.address('prometheus')}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    )
    return Service(
        name="prometheus", command=(str(tools.prometheus), *flags), ready_url=ports.url("prometheus") + "/-/ready"
    )


def alertmanager(config: LabConfig, tools: Tools) -> Service:
    ports, directory = config.ports, config.directory
    flags = (
        f"--config.file={directory.alertmanager_config}",
        f"--storage.path={directory.alertmanager_data}",
        f"--web.listen-address={ports.address('alertmanager')}",
        "--cluster.listen-address=",  # no cluster, which would listen on every interface
        "--log.level=warn",
    )
    return Service(
        name="alertmanager",
        command=(str(tools.alertmanager), *flags),
        ready_url=ports.url("alertmanager") + "/-/ready",
        cwd=tools.alertmanager_cwd,
    )


def load(config: LabConfig, scenario: str) -> Service:
    flags = {
        "--scenario": scenario,
        "--target": config.ports.url("relay"),
        "--out": str(config.directory.load),
        "--slos": str(config.slos),
        "--metrics": config.ports.address("load"),
    }
    # The lab is for looking: on a slow machine its report says INVALID, and the lab goes on.
    command = (*ours(flags, "load", "run"), "--allow-invalid", *config.load)
    return Service(name="load", command=command, may_exit=True, grace=60)


def grafana_server(config: LabConfig, program: str) -> Service:
    home = Path(program).resolve().parent.parent
    if not (home / "conf" / "defaults.ini").is_file():
        home = Path("/usr/share/grafana")  # of a system package, which installs the program elsewhere
    folder = config.directory.grafana
    settings = {
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PROVISIONING": str(folder / "provisioning"),
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(config.ports.grafana),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",  # the lab connects to nothing outside this machine
    }
    return Service(
        name="grafana",
        command=(program, "server", "--homepath", str(home)),
        ready_url=config.ports.url("grafana") + "/api/health",
        env={**os.environ, **settings},
    )


def preview(config: LabConfig) -> Service:
    """The dashboards without Grafana, on Grafana's port, so that links in alerts work."""
    ports = config.ports
    flags = {
        "--prometheus": ports.url("prometheus"),
        "--serve": ports.address("grafana"),
        "--scrape-interval": PREVIEW_SCRAPES,
    }
    command = ours(flags, "dashboards", "preview")
    return Service(name="preview", command=command, ready_url=ports.url("grafana") + "/slo-overview")


def ours(flags: Mapping[str, str], *words: str) -> tuple[str, ...]:
    """A command of our program, with these words, and then flags and their values."""
    return (*OURS, *words, *(word for flag in flags.items() for word in flag))
