"""The settings of a load run, from flags, or from environment variables under plain Locust."""

import argparse
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from exporters.text.addresses import Address, parse_address
from exporters.text.command_flags import Option, add_fields
from exporters.text.environment import set_defaults
from exporters.text.errors import UsageError
from exporters.text.units import parse_duration
from exporters.vocabulary import slo_file
from exporters.vocabulary.ceilings import read_ceilings
from exporters.vocabulary.signals import SEND_LATE
from loadgen.client import target as load_target
from loadgen.results.record import Hardware
from loadgen.run.warm_up import Waves, waves
from loadgen.schedule import scenario, traces
from loadgen.schedule.phases import Phase, Replay, scale_rates, with_duration
from loadgen.schedule.requests import Schedule, Workload

duration = partial(parse_duration, examples="30s or 5m")
"""The type of flags with a duration above 0."""
_seconds = partial(duration, allow_zero=True)


def number(text: str) -> float:
    """NaN for a text that is not a number, as no range has it."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def above_zero(text: str, what: str, form: str) -> float:
    if not 0 < (value := number(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"invalid {what} {text!r}; write {form}")
    return value


_factor = partial(above_zero, what="factor", form="a number above 0, such as 1.5")


def at_least_one(text: str) -> int:
    if not (value := _whole(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


AT_LEAST_ONE = Option("N", at_least_one)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What is sent: a schedule by its name, the client's timeout in seconds, and the share of each class.

    `timeouts` has the timeouts of the classes with their own.
    """

    name: str
    timeout: float
    timeouts: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float]
    schedule: Schedule

    @property
    def longest_timeout(self) -> float:
        return max([self.timeout, *self.timeouts.values()])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of one run; `phases` and `seed` are those of the scenario unless flags override them."""

    plan: LoadPlan
    phases: tuple[Phase, ...]
    seed: int
    target: load_target.Target
    out: Path
    slos: slo_file.SloFile
    model: str | None
    rate_scale: float
    grace: float
    max_open: int
    max_concurrency: int | None
    max_send_lag: float
    allow_invalid: bool
    stop_when_saturated: bool
    save_detailed: bool
    check: bool
    metrics: Address | None
    metrics_wait: float
    warm_up: Waves = ()
    hardware: Hardware | None = None
    experiment: str = ""
    configuration: str = ""


_AS_GIVEN = (
    *("model", "rate_scale", "grace", "max_open", "max_concurrency", "max_send_lag", "allow_invalid"),
    *("stop_when_saturated", "save_detailed", "metrics", "metrics_wait", "experiment", "configuration"),
)
"""The settings that are the values of flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFlags:
    """The flags of the target."""

    target: Annotated[str, Option("URL")]
    """base URL of the sidecar or engine, such as http://127.0.0.1:8000"""
    api_key_file: Annotated[str | None, Option("FILE")] = None
    """file with the API key of the target, sent as a bearer token (default: the key in VLLM_SLO_API_KEY)"""
    target_ca: Annotated[str | None, Option("FILE")] = None
    """CA certificates of an https target, in PEM (default: the system's)"""
    allow_remote: bool = False
    """allow a target on another machine"""
    no_check: bool = False
    """do not request /v1/models first; needs --model"""
    model: Annotated[str | None, Option("NAME")] = None
    """model to request (default: the first in /v1/models)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonFlags:
    """The flags of a run and of each probe of a search."""

    out: Annotated[str, Option("DIR")]
    """output folder of the run"""
    seed: Annotated[int | None, Option("N", _whole)] = None
    """random seed (default: the scenario's)"""
    grace: Annotated[float, Option("TIME", _seconds)] = 10.0
    """time for open requests to finish when the run is stopped (default: 10s)"""
    max_open: Annotated[int, Option("N", _whole)] = 5000
    """limit of open requests; requests above it are recorded as not_sent (default: %(default)s)"""
    max_concurrency: Annotated[int | None, AT_LEAST_ONE] = None
    """limit of requests on the way; others wait, and their latencies include the wait (default: none)"""
    max_send_lag: Annotated[float, Option("TIME", _seconds)] = SEND_LATE
    """99th percentile of the delay between due time and sending above which the run is invalid (default: 50ms)"""
    save_detailed: bool = False
    """save the answer and the gaps between the chunks of each request too, which takes memory"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The other flags of a run."""

    duration: Annotated[float | None, Option("TIME", _seconds)] = None
    """length of the run, such as 5m (default: the scenario's)"""
    rate_scale: Annotated[float, Option("X", _factor)] = 1.0
    """factor for every rate (default: %(default)s)"""
    warm_up: Annotated[int | None, AT_LEAST_ONE] = None
    """before the first phase, send 1, 2, 4 ... N requests at once, cold and again warm, and then the texts that prompts
    share (default: none)"""
    allow_invalid: bool = False
    """exit with 0 even if the run is invalid"""
    stop_when_saturated: bool = False
    """stop when the server does not keep up with a constant rate: open requests grow without bound"""
    roofline: Annotated[Path | None, Option("FILE", Path)] = None
    """output of vllm-slo roofline --format json: a run with faster answers is invalid"""
    metrics: Annotated[Address | None, Option("HOST:PORT", partial(parse_address, example="127.0.0.1:9465"))] = None
    """serve /metrics here; the run waits up to two scrape intervals for a scrape before and after the load"""
    metrics_wait: Annotated[float, Option("TIME", _seconds)] = 5.0
    """additional time for Prometheus to discover this process before the first scrape (default: 5s)"""
    experiment: Annotated[str, Option("NAME")] = ""
    """experiment of the run, for run.json and the metrics"""
    configuration: Annotated[str, Option("NAME")] = ""
    """configuration of the engine in this run, for run.json and the metrics"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFlags:
    workers: Annotated[int, AT_LEAST_ONE] = 1
    """processes that send a share of the requests each; one core for each (default: %(default)s)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFlags:
    trace: Annotated[str, Option("FILE")]
    """the trace"""
    trace_format: Annotated[str | None, Option(None, choices=tuple(traces.TraceFormat))] = None
    """format of the trace (default: by its first line)"""
    rate: Annotated[float | None, Option("RATE", _factor)] = None
    """requests/s of a trace without times (sharegpt), in a Poisson process"""
    default_class: Annotated[str, Option("NAME")] = "trace"
    """class of requests for which the trace has none (default: %(default)s)"""
    timeout: Annotated[float, Option("TIME", duration)] = 180.0
    """client timeout, from the due time of the request (default: 3m)"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a run."""
    add_common_flags(parser)
    add_fields(parser, RunFlags)


def add_common_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a run and of each probe of a search."""
    add_target_flags(parser)
    add_fields(parser, CommonFlags)


def add_target_flags(parser: argparse.ArgumentParser) -> None:
    add_fields(parser, TargetFlags)
    slo_file.add_flag(parser)


def with_defaults(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a command that has only the common flags, with the defaults of the others."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    required = ["--target", arguments.target, "--out", arguments.out]
    return argparse.Namespace(**(vars(parser.parse_args(required)) | vars(arguments)))


def from_arguments(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> RunSettings:
    """The settings of a scenario from parsed flags.

    Raises:
        UsageError: a file or a flag is invalid.
    """
    chosen = scenario.load(scenario.find(arguments.scenario))
    phases = scale_rates(chosen.phases, arguments.rate_scale)
    if arguments.duration is not None:
        phases = with_duration(phases, arguments.duration)
    seed = chosen.seed if arguments.seed is None else arguments.seed
    plan = LoadPlan(
        name=chosen.name,
        timeout=chosen.timeout,
        timeouts=chosen.timeouts,
        shares=chosen.shares,
        schedule=Workload(chosen, phases, seed),
    )
    ramp = () if arguments.warm_up is None else waves(chosen, arguments.warm_up, seed)
    return replace(of_plan(arguments, plan, phases, seed, environment), warm_up=ramp)


def of_trace(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> RunSettings:
    """The settings of a replay from parsed flags.

    Raises:
        UsageError: a file or a flag is invalid.
    """
    if arguments.warm_up is not None:
        raise UsageError("--warm-up: needs a scenario, whose classes give the prompts; a trace has no other ones")
    path, seed = Path(arguments.trace), arguments.seed or 0
    trace_format = arguments.trace_format and traces.TraceFormat(arguments.trace_format)
    pace = None if arguments.rate is None else traces.Pace(arguments.rate, seed)
    requests = traces.read_trace(path, trace_format, arguments.default_class, pace)
    schedule = traces.TraceSchedule(requests, seed, arguments.rate_scale, arguments.duration)
    plan = LoadPlan(name=path.name, timeout=arguments.timeout, shares=schedule.shares, schedule=schedule)
    return of_plan(arguments, plan, (Replay(traces.PHASE, schedule.seconds),), seed, environment)


def of_plan(
    arguments: argparse.Namespace,
    plan: LoadPlan,
    phases: tuple[Phase, ...],
    seed: int,
    environment: Mapping[str, str],
) -> RunSettings:
    """The settings of a plan, from parsed flags.

    Raises:
        UsageError: a file or a flag is invalid.
    """
    if arguments.no_check and arguments.model is None:
        raise UsageError("--no-check: the model is unknown without /v1/models; set --model too")
    return RunSettings(
        plan=plan,
        phases=phases,
        seed=seed,
        target=load_target.parse(
            arguments.target,
            allow_remote=arguments.allow_remote,
            api_key=load_target.read_api_key(arguments.api_key_file, environment),
            ca_file=arguments.target_ca,
        ),
        out=Path(arguments.out),
        slos=slo_file.load(arguments.slos),
        hardware=_hardware(arguments.roofline),
        check=not arguments.no_check,
        **{name: getattr(arguments, name) for name in _AS_GIVEN},
    )


def _hardware(path: Path | None) -> Hardware | None:
    if path is None:
        return None
    ceilings = read_ceilings(path)
    return Hardware(prefill=ceilings.prefill, step=1 / ceilings.decode_of(1))


def from_environment(environment: Mapping[str, str], host: str | None) -> RunSettings:
    """The settings from VLLM_SLO_SCENARIO, VLLM_SLO_TARGET etc.; Locust's `host` overrides VLLM_SLO_TARGET.

    Raises:
        UsageError: a file or a value is invalid.
    """
    parser = argparse.ArgumentParser(prog="locust")
    parser.add_argument("--scenario", default="mixed")
    add_flags(parser)
    variables = {"VLLM_SLO_OUT": "load-results", **environment}
    if host:
        variables["VLLM_SLO_TARGET"] = host
    if "VLLM_SLO_TARGET" not in variables:
        raise UsageError("no target: set VLLM_SLO_TARGET, or Locust's --host, such as http://127.0.0.1:8000")
    set_defaults(parser, variables)
    return from_arguments(parser.parse_args([]), environment)
