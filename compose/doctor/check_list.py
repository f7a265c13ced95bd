"""The checks of the doctor, in the order of the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compose.doctor import engine_checks, machine_checks, program_checks, prometheus_checks
from compose.doctor.clock_check import clocks
from compose.doctor.engine_pods import engine_pods
from compose.doctor.engine_reading import EngineReading, read_engine
from compose.doctor.finding import Finding, Place, Unread
from compose.doctor.program_checks import GpuReading, read_gpus
from compose.doctor.prometheus_reading import PrometheusReading, read_prometheus
from compose.doctor.rule_difference import Match, best_match, our_rules
from compose.doctor.sidecar_reading import SidecarReading, read_sidecar
from compose.lab.ports import Ports
from exporters.configuration.sidecar import SidecarConfig
from exporters.processes.worker_threads import WorkerThreads
from exporters.text.errors import UsageError
from exporters.text.yaml_reader import open_yaml
from exporters.vocabulary.slo_file import SloFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The flags; sizes in bytes, None without a limit."""

    engine: Place
    sidecar: Place
    prometheus: Place
    engine_headers: Mapping[str, str]
    send_request: bool
    ports: Ports
    clients: int
    slos: Path | None
    specs: tuple[tuple[str, SloFile], ...]
    """The SLO file of the flag, else those that are shipped, by name."""
    rules: Path | None
    request_log: str | None
    request_log_total: int | None
    trace_file: str | None
    trace_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read before the checks."""

    settings: Settings
    engine: EngineReading
    sidecar: SidecarReading
    prometheus: PrometheusReading
    gpus: Sequence[GpuReading] | Unread
    loaded: Match | Unread
    """The rules in Prometheus against the SLO file."""
    written: Match | Unread
    """The rules in the file of --rules against the SLO file."""

    @property
    def spec(self) -> SloFile:
        """The SLO file that fits best; the names of jobs are the same in those that are shipped."""
        return self.settings.specs[0][1] if isinstance(self.loaded, Unread) else self.loaded.spec

    @property
    def certain_spec(self) -> SloFile | Unread:
        """The SLO file, unless it is a guess that the rules do not confirm."""
        if self.settings.slos is not None:
            return self.spec
        if isinstance(self.loaded, Unread):
            return self.loaded
        if self.loaded.difference.count:
            return Unread("it is not known which SLO file is in use", "vllm-slo doctor --slos FILE")
        return self.spec


@dataclass(frozen=True, slots=True)
class Check:
    """`question` is what a finding answers, for the documentation."""

    name: str
    question: str
    run: Callable[[Readings], Finding]


def read(settings: Settings) -> Readings:
    """Read all servers and the GPUs at the same time.

    Raises:
        UsageError: the file of --rules is invalid.
    """
    with WorkerThreads(4, "doctor") as pool:
        engine = pool.submit(read_engine, settings.engine, settings.engine_headers, send_request=settings.send_request)
        sidecar = pool.submit(read_sidecar, settings.sidecar)
        prometheus = pool.submit(read_prometheus, settings.prometheus)
        gpus = pool.submit(read_gpus)
        return Readings(
            settings=settings,
            engine=engine.result(),
            sidecar=sidecar.result(),
            prometheus=prometheus.result(),
            gpus=gpus.result(),
            loaded=_loaded(settings, prometheus.result()),
            written=_written(settings),
        )


def run(readings: Readings) -> list[tuple[Check, Finding]]:
    """The findings of all checks, which run at the same time, in the order of the list."""
    with WorkerThreads(4, "doctor") as pool:
        return list(zip(CHECKS, pool.map(lambda check: check.run(readings), CHECKS), strict=True))


def _loaded(settings: Settings, prometheus: PrometheusReading) -> Match | Unread:
    if isinstance(prometheus.rules, Unread):
        return prometheus.rules
    return best_match(settings.specs, prometheus.rules, prometheus.formatted)


def _written(settings: Settings) -> Match | Unread:
    if settings.rules is None:
        return Unread("--rules is not set", "vllm-slo doctor --rules FILE")
    content = open_yaml(settings.rules).node().plain()
    try:
        groups = (content.get("spec") or content)["groups"]  # a PrometheusRule has them in `spec`
        return best_match(settings.specs, our_rules(groups), lambda text: text)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--rules: {settings.rules} is not a rule file; write one with: vllm-slo alerts render"
        ) from error


def _clocks(of: Readings) -> Finding:
    sources = {"engine": of.engine.page, "sidecar": of.sidecar.readiness, "Prometheus": of.prometheus.clock}
    return clocks(sources)


def _request_log(of: Readings) -> Finding:
    cost = "on a full disk, lines of the request log are dropped"
    flags = "--request-log", of.settings.request_log_total, "--request-log-total"
    return machine_checks.disk(of.settings.request_log, *flags, cost)


def _trace_file(of: Readings) -> Finding:
    cost = "on a full disk, `vllm-slo traces` rejects spans"
    return machine_checks.disk(of.settings.trace_file, "--trace-file", of.settings.trace_size, "--trace-max-size", cost)


def _default_config(of: Readings) -> SidecarConfig:
    return SidecarConfig(upstream=of.settings.engine.url, slos="", listen="", metrics="")


CHECKS = (
    Check(
        "descriptors",
        "Is the limit of open files high enough for `--clients` per relay?",
        lambda of: machine_checks.descriptors(of.sidecar.page, of.settings.clients),
    ),
    Check("request log", "Is there enough disk space for the request log at its maximum size?", _request_log),
    Check(
        "trace file", "Is there enough disk space for the file of `vllm-slo traces` at its maximum size?", _trace_file
    ),
    Check(
        "ports",
        "Are the ports of the lab free, or used by its own services?",
        lambda of: machine_checks.free_ports(of.settings.ports),
    ),
    Check(
        "processes",
        "May the sidecar start all its processes and threads?",
        lambda of: machine_checks.tasks(of.sidecar.page, _default_config(of)),
    ),
    Check(
        "memory",
        "Is the limit of memory high enough for the sidecar?",
        lambda of: machine_checks.memory(_default_config(of)),
    ),
    Check("docker", "Can Docker and Compose run `compose.yaml`?", lambda _: program_checks.docker()),
    Check("gpu driver", "Is the driver new enough for vLLM's builds?", lambda of: program_checks.gpu_driver(of.gpus)),
    Check(
        "gpu clocks",
        "Does heat, power, a fault or a setting slow down a GPU?",
        lambda of: program_checks.gpu_clocks(of.gpus),
    ),
    Check(
        "gpu settings",
        "Is persistence mode on, and the power limit the usual one?",
        lambda of: program_checks.gpu_settings(of.gpus),
    ),
    Check("clocks", "Do the clocks of engine, sidecar and Prometheus agree with this machine's?", _clocks),
    Check("sidecar", "Is the sidecar ready, with a valid SLO file?", lambda of: engine_checks.sidecar(of.sidecar)),
    Check(
        "upstream",
        "Does the sidecar reach its engine, and read the metrics of all engines?",
        lambda of: engine_checks.upstream(of.sidecar.page),
    ),
    Check("engine metrics", "Can the engine's metrics be read?", lambda of: engine_checks.engine_metrics(of.engine)),
    Check(
        "engine exposure",
        "Does the engine respond on a public address without a key?",
        lambda of: engine_checks.exposure(of.engine),
    ),
    Check(
        "cached tokens",
        "Do responses report cached tokens (`--enable-prompt-tokens-details`)?",
        lambda of: engine_checks.cached_tokens(of.engine, of.sidecar.page),
    ),
    Check(
        "engine times",
        "Do the engine's queue, prefill and decode times arrive (`--enable-per-request-metrics`)?",
        lambda of: engine_checks.engine_times(of.engine, of.sidecar.page),
    ),
    Check(
        "engine spans",
        "Does the engine export spans (`--otlp-traces-endpoint`)?",
        lambda of: engine_checks.engine_spans(of.engine),
    ),
    Check("prometheus", "Does Prometheus respond?", lambda of: prometheus_checks.server(of.prometheus)),
    Check(
        "scrape targets",
        "Does Prometheus scrape the job that the rules read?",
        lambda of: prometheus_checks.targets(of.prometheus, of.spec),
    ),
    Check(
        "target names",
        "Do alerts and boards name pods, not addresses?",
        lambda of: prometheus_checks.target_names(of.prometheus, of.spec),
    ),
    Check(
        "engine pods",
        "Has each pod with an engine a sidecar?",
        lambda of: engine_pods(of.prometheus.engine_pods, of.spec),
    ),
    Check(
        "scrape interval",
        "Is the interval the one in the SLO file?",
        lambda of: prometheus_checks.scrape_interval(of.prometheus, of.certain_spec),
    ),
    Check(
        "labels",
        "Do our series keep their labels (none is `exported_*`)?",
        lambda of: prometheus_checks.label_collisions(of.prometheus),
    ),
    Check(
        "rules",
        "Are the rules in Prometheus those of the SLO file?",
        lambda of: prometheus_checks.rule_content(of.loaded, of.settings.prometheus, of.settings.slos),
    ),
    Check(
        "rule file",
        "Is the file of `--rules` what the SLO file gives?",
        lambda of: prometheus_checks.rule_content(of.written, of.settings.rules or "--rules", of.settings.slos),
    ),
    Check(
        "config revisions",
        "Has each new config revision of the last day a config change?",
        lambda of: prometheus_checks.config_revisions(of.prometheus),
    ),
    Check("exemplars", "Does Prometheus store exemplars?", lambda of: prometheus_checks.exemplars(of.prometheus)),
    Check(
        "histograms",
        "Do histograms keep the `_bucket` series (no conversion to NHCB)?",
        lambda of: prometheus_checks.classic_histograms(of.prometheus, of.spec),
    ),
)
