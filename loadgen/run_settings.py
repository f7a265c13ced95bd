"""The settings of a load run, from flags, or from the environment with plain Locust."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from exporters import slos
from exporters.addresses import Address, parse_address
from exporters.errors import UsageError
from exporters.quantities import parse_duration
from loadgen import arrivals, load_target, scenario

_seconds = partial(parse_duration, examples="30s or 5m", allow_zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of one run; flags have changed the phases and the seed of the scenario."""

    scenario: scenario.Scenario
    phases: tuple[arrivals.Phase, ...]
    seed: int
    target: load_target.Target
    out: Path
    slos: slos.SloFile
    model: str | None
    rate_scale: float
    grace: float
    max_open: int
    check: bool
    metrics: Address | None
    metrics_wait: float

    @property
    def length(self) -> float:
        """Seconds from the first to the last due time."""
        return sum(phase.duration for phase in self.phases)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="URL", required=True, help="the sidecar or engine, http://127.0.0.1:8000")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for requests.jsonl, run.json, summary.json")
    parser.add_argument(
        "--slos", metavar="FILE", default=str(slos.SHIPPED), help="SLO file that grades (default: the shipped)"
    )
    parser.add_argument("--seed", type=_whole, metavar="N", help="instead of the scenario's")
    parser.add_argument("--model", metavar="NAME", help="instead of the first that /v1/models names")
    parser.add_argument("--duration", type=_seconds, metavar="5m", help="cut off, or draw out the last phase")
    parser.add_argument("--rate-scale", type=_positive, metavar="1.0", default=1.0, help="multiply every rate")
    parser.add_argument(
        "--grace", type=_seconds, metavar="10s", default=10.0, help="how long open requests may end when stopped"
    )
    parser.add_argument(
        "--max-open", type=_whole, metavar="N", default=5000, help="beyond so many open requests record not_sent"
    )
    parser.add_argument(
        "--metrics",
        type=partial(parse_address, example="127.0.0.1:9465"),
        metavar="HOST:PORT",
        help="serve series for Prometheus; the run waits up to two scrape intervals for a scrape before and after it",
    )
    parser.add_argument(
        "--metrics-wait",
        type=_seconds,
        metavar="5s",
        default=5.0,  # the discovery of a Prometheus that has just started, as in the lab
        help="how much longer to wait for the first scrape, until Prometheus has discovered this process",
    )
    parser.add_argument("--allow-remote", action="store_true", help="the target may be another machine")
    parser.add_argument("--no-check", action="store_true", help="do not request the list of models before the load")


def from_arguments(arguments: argparse.Namespace) -> RunSettings:
    """The run that the flags describe.

    Raises:
        UsageError: a file or a flag is wrong.
    """
    chosen = scenario.load(scenario.find(arguments.scenario))
    phases = arrivals.scale_rates(chosen.phases, arguments.rate_scale)
    if arguments.duration is not None:
        phases = arrivals.with_duration(phases, arguments.duration)
    if arguments.no_check and arguments.model is None:
        raise UsageError("--no-check leaves the target unasked, so its model is not known; give --model too")
    return RunSettings(
        scenario=chosen,
        phases=phases,
        seed=chosen.seed if arguments.seed is None else arguments.seed,
        target=load_target.parse(arguments.target, allow_remote=arguments.allow_remote),
        out=Path(arguments.out),
        slos=slos.load(Path(arguments.slos)),
        model=arguments.model,
        rate_scale=arguments.rate_scale,
        grace=arguments.grace,
        max_open=arguments.max_open,
        check=not arguments.no_check,
        metrics=arguments.metrics,
        metrics_wait=arguments.metrics_wait,
    )


def from_environment(environment: Mapping[str, str], host: str | None) -> RunSettings:
    """The run that VLLM_SLO_SCENARIO, VLLM_SLO_TARGET and so on describe; Locust's own host comes before the target.

    Raises:
        UsageError: a file or a value is wrong.
    """
    parser = argparse.ArgumentParser(prog="locust", exit_on_error=False)
    parser.add_argument("scenario")
    add_flags(parser)
    flags = [environment.get("VLLM_SLO_SCENARIO", "mixed")]
    variables = {"VLLM_SLO_OUT": "load-results", **environment}
    if host:
        variables["VLLM_SLO_TARGET"] = host
    if "VLLM_SLO_TARGET" not in variables:
        raise UsageError("no target: set VLLM_SLO_TARGET, or Locust's --host, such as http://127.0.0.1:8000")
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of a parser's options
        value = variables.get(f"VLLM_SLO_{action.dest.upper()}")
        if not action.option_strings or value is None or action.dest == "help":
            continue
        if action.nargs != 0:
            flags.append(f"{action.option_strings[0]}={value}")
        elif value.lower() in {"1", "true", "yes"}:
            flags.append(action.option_strings[0])
    try:
        return from_arguments(parser.parse_args(flags))
    except argparse.ArgumentError as error:
        raise UsageError(f"environment: {error}") from error


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no factor; write a number above 0, such as 1.5")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return int(text)
