"""The services of the native lab: for each, the command that starts it and the URL that says it is ready."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import dashboards
from compose import rewrite_config
from compose.child_processes import Service
from compose.ports import HOST, Ports
from compose.prometheus_tools import Tools
from compose.run_directory import RunFolder
from compose.vllm_cpu import launch
from compose.vllm_cpu.install import VllmCpu

# `-P`: whatever lies in the working directory must not be imported in place of ours.
OURS = (sys.executable, "-P", "-c", "from compose.cli import main; raise SystemExit(main())")
PREVIEW_SCRAPES = "5s"
"""Five times the lab's interval: a rate over four scrapes of its little traffic would be spikes only."""

ROOFLINE = rewrite_config.ROOM / "simulator" / "roofline.json"
"""What the card and the model that the simulator plays could do at the most: `vllm-slo roofline` of both."""

DASHBOARDS = Path(dashboards.__file__).parent / "generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabConfig:
    """One run of the lab; `engine` is the URL of one that runs already; without it and `vllm` it is the simulator."""

    folder: RunFolder
    ports: Ports
    slos: Path = rewrite_config.ROOM / "slos.yaml"
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
    def used(self) -> tuple[str, ...]:
        """The services whose ports must be free."""
        always = ("relay", "sidecar", "prometheus", "alertmanager", "webhook", "grafana")
        others = {"engine": not self.engine, "load": self.scenario}
        return (*always, *(name for name, wanted in others.items() if wanted))


def grafana() -> str | None:
    return shutil.which("grafana")


def write_configs(config: LabConfig, rules: str) -> None:
    """What Prometheus and Alertmanager read."""
    folder = config.folder
    where = rewrite_config.places(config.ports, rules=folder.rules, dashboards=DASHBOARDS)
    folder.rules.mkdir(parents=True)
    (folder.rules / "slo.yml").write_text(rules, encoding="utf-8")
    folder.prometheus_config.write_text(rewrite_config.localised(rewrite_config.PROMETHEUS, where), encoding="utf-8")
    folder.alertmanager_config.write_text(
        rewrite_config.localised(rewrite_config.ALERTMANAGER, where), encoding="utf-8"
    )
    if grafana():
        for source in rewrite_config.GRAFANA.glob("*/*.yaml"):
            target = folder.grafana / "provisioning" / source.relative_to(rewrite_config.GRAFANA)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rewrite_config.localised(source, where), encoding="utf-8")


def services(config: LabConfig, tools: Tools) -> tuple[Service, ...]:
    """All but the load, in the order in which they start."""
    own = () if config.engine else (vllm_cpu(config, config.vllm) if config.vllm else simulator(config),)
    shown = grafana()
    return (
        alertmanager(config, tools),
        prometheus(config, tools),
        *own,
        sidecar(config),
        grafana_server(config, shown) if shown else preview(config),
    )


def simulator(config: LabConfig) -> Service:
    ports = config.ports
    return Service(
        name="simulator",
        command=(*OURS, "simulate", "--listen", ports.address("engine"), *config.simulator),
        ready=ports.url("engine") + "/health",
    )


def vllm_cpu(config: LabConfig, made: VllmCpu) -> Service:
    ports = config.ports
    return Service(
        name=launch.NAME,
        command=launch.command(made, HOST, ports.engine, config.otlp),
        ready=ports.url("engine") + "/health",
        within=launch.START_SECONDS,
        env=launch.environment(made),
        grace=20,
    )


def sidecar(config: LabConfig) -> Service:
    ports = config.ports
    flags = {
        "--upstream": config.upstream,
        "--listen": ports.address("relay"),
        "--metrics": ports.address("sidecar"),
        "--slos": str(config.slos),
        "--request-log": str(config.folder.request_log),
        "--drain": "5s",  # the load has ended before; what is still open would be open for minutes
    }
    if config.otlp is not None:
        flags["--otlp"] = config.otlp
    if not config.engine and not config.vllm:
        flags["--roofline"] = str(ROOFLINE)
    return Service(
        name="sidecar",
        command=(*OURS, "sidecar", *_words(flags)),
        ready=ports.url("sidecar") + "/readyz",
        grace=25,
    )


def prometheus(config: LabConfig, tools: Tools) -> Service:
    ports, folder = config.ports, config.folder
    flags = (
        f"--config.file={folder.prometheus_config}",
        f"--storage.tsdb.path={folder.prometheus_data}",
        f"--web.listen-address={ports.address('prometheus')}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    )
    return Service(
        name="prometheus", command=(str(tools.prometheus), *flags), ready=ports.url("prometheus") + "/-/ready"
    )


def alertmanager(config: LabConfig, tools: Tools) -> Service:
    ports, folder = config.ports, config.folder
    flags = (
        f"--config.file={folder.alertmanager_config}",
        f"--storage.path={folder.alertmanager_data}",
        f"--web.listen-address={ports.address('alertmanager')}",
        "--cluster.listen-address=",  # alone: it would open a port on every interface
        "--log.level=warn",
    )
    return Service(
        name="alertmanager",
        command=(str(tools.alertmanager), *flags),
        ready=ports.url("alertmanager") + "/-/ready",
        cwd=tools.alertmanager_cwd,
    )


def load(config: LabConfig, scenario: str) -> Service:
    flags = {
        "--target": config.ports.url("relay"),
        "--out": str(config.folder.load),
        "--slos": str(config.slos),
        "--metrics": config.ports.address("load"),
    }
    return Service(
        name="load", command=(*OURS, "load", "run", scenario, *_words(flags), *config.load), may_end=True, grace=60
    )


def grafana_server(config: LabConfig, program: str) -> Service:
    home = Path(program).resolve().parent.parent
    if not (home / "conf" / "defaults.ini").is_file():  # a package puts the program apart from its files
        home = Path("/usr/share/grafana")
    folder = config.folder.grafana
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
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",  # the lab reaches nothing outside this machine
    }
    return Service(
        name="grafana",
        command=(program, "server", "--homepath", str(home)),
        ready=config.ports.url("grafana") + "/api/health",
        env={**os.environ, **settings},
    )


def preview(config: LabConfig) -> Service:
    """The dashboards where there is no Grafana, at its port, so that the links of alerts lead there."""
    ports = config.ports
    flags = {
        "--prometheus": ports.url("prometheus"),
        "--serve": ports.address("grafana"),
        "--scrape-interval": PREVIEW_SCRAPES,
    }
    return Service(
        name="preview",
        command=(*OURS, "dashboards", "preview", *_words(flags)),
        ready=ports.url("grafana") + "/slo-overview",
    )


def _words(flags: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for flag in flags.items() for word in flag)
