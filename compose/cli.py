"""The command `vllm-slo`: imports the module of a subcommand and converts errors to messages and exit codes."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from exporters.text.environment import set_defaults
from exporters.text.errors import UsageError

PROGRAM = "vllm-slo"

# Each module has `configure(parser)`, which declares flags and sets `run`, a function of the parsed arguments that
# returns the exit status. Only the module of the selected command is imported, because the load generator's gevent and
# the sidecar's asyncio must not share a process.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": (
        "compose.lab.up",
        "run the whole lab without containers: engine, sidecar, Prometheus, Alertmanager, traces, load",
    ),
    "demo": ("compose.demo.command", "show an error budget burn, the page, a config change and the resolved alert"),
    "sidecar": ("exporters.sidecar.command", "relay and measure OpenAI-compatible traffic"),
    "flip": ("exporters.sidecar.flip_command", "record a config change that the engine does not expose"),
    "drain": ("exporters.sidecar.drain_command", "drain a sidecar before it or its engine stops"),
    "simulate": ("compose.simulator.command", "run a simulated vLLM, for machines without a GPU"),
    "alerts": ("alerts.command", "check and explain the SLO file, render Prometheus rules and Alertmanager routes"),
    "webhook": (
        "compose.lab.webhook_process",
        "print the notifications of Alertmanager as they arrive, to test a page",
    ),
    "dashboards": (
        "dashboards.command",
        "render Grafana dashboards, audit their queries, preview them without Grafana",
    ),
    "load": ("loadgen.command", "generate open-loop mixed traffic and report the results"),
    "experiment": (
        "compose.experiments.command",
        "measure engine configurations under the same requests, one after the other",
    ),
    "requests": ("exporters.analysis.requests.command", "filter and sort the requests of a request log"),
    "traces": (
        "exporters.analysis.traces.command",
        "keep the spans of the last hour, and show requests and traces as pages",
    ),
    "backfill": ("compose.backfill.command", "make blocks of Prometheus from request logs"),
    "compare": ("exporters.analysis.compare.command", "compare the requests before and after a config change"),
    "diagnose": (
        "exporters.analysis.diagnose.command",
        "say what binds each class of requests, with the evidence, and the first lever to try",
    ),
    "roofline": (
        "exporters.analysis.roofline.command",
        "calculate the upper limits of a GPU and model: prefill, decode, KV cache",
    ),
    "doctor": (
        "compose.doctor.command",
        "check the machine, engine, sidecar and Prometheus for what hides requests or alerts",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; exit status 0 success, 1 a check failed, 2 wrong usage or an invalid file."""
    flags = list(sys.argv[1:] if argv is None else argv)
    chosen = next((flag for flag in flags if not flag.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Observability and SLO alerting for vLLM.",
        epilog="Every flag has an environment variable: VLLM_SLO_LISTEN sets --listen. The variable of a repeatable "
        f"flag is a comma-separated list. '{PROGRAM} COMMAND --help' describes a command.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    try:
        for name, (module, text) in COMMANDS.items():
            sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
            if name == chosen:
                _import(module).configure(sub)
                set_defaults(sub, os.environ)
        arguments = parser.parse_args(flags)
        return _run(arguments)
    except UsageError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has exited, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace) -> int:
    """Run the command; some import what only their run needs, such as Locust, when they run."""
    try:
        return int(arguments.run(arguments))
    except ModuleNotFoundError as error:
        raise _missing_extra(COMMANDS[arguments.command][0], error) from error


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _missing_extra(module, error) from error


def _missing_extra(module: str, error: ModuleNotFoundError) -> UsageError:
    """What to install for the command of this module; raises `error` if the missing module is ours."""
    folder = module.split(".", maxsplit=1)[0]
    missing = (error.name or "").split(".", maxsplit=1)[0]
    if missing in {"exporters", "alerts", "dashboards", "loadgen", "compose"}:
        raise error
    extra = {"exporters": "sidecar", "dashboards": "dashboards", "loadgen": "loadgen"}.get(folder, "lab")
    return UsageError(
        f"the package {missing!r} is not installed; this command needs the extra {extra!r}; "
        f"in the clone of {PROGRAM}: pip install '.[{extra}]'"
    )
