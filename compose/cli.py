"""The command `vllm-slo`: imports the module of a subcommand and converts errors to messages and exit statuses."""

import importlib
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import NoReturn

from compose.command_parser import CommandParser
from exporters.text.errors import UsageError

PROGRAM = "vllm-slo"

# Each module has `configure(parser)`, which declares flags and sets `run`, a function of the parsed arguments that
# returns the exit status. Only the module of the selected command is imported, because the load generator's gevent and
# the sidecar's asyncio must not share a process.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "set up": {
        "doctor": ("compose.doctor.command", "find what hides requests or alerts: machine, engine, sidecar, rules"),
    },
    "run": {
        "sidecar": ("exporters.sidecar.command", "relay and measure OpenAI-compatible traffic"),
        "drain": ("exporters.sidecar.drain_command", "drain a sidecar before it or its engine stops"),
        "flip": ("exporters.sidecar.flip_command", "record a config change that the engine does not expose"),
    },
    "alert and see": {
        "alerts": ("alerts.command", "check and explain the SLO file; render rules and routes"),
        "dashboards": ("dashboards.command", "render Grafana dashboards, audit their queries, preview them"),
        "deploy": ("compose.deploy.command", "render an SLO file as values of the Helm chart"),
        "webhook": ("compose.lab.webhook", "print the notifications of Alertmanager, to test a page"),
    },
    "look into": {
        "requests": ("exporters.analysis.requests.command", "filter and sort the requests of a request log"),
        "compare": ("exporters.analysis.compare.command", "compare the requests before and after a config change"),
        "diagnose": (
            "exporters.analysis.diagnose.command",
            "find what limits each class of requests, and what to try",
        ),
        "whatif": ("compose.whatif.command", "replay a request log under other settings, in virtual time"),
        "roofline": (
            "exporters.analysis.roofline.command",
            "calculate the upper limits of a GPU and a model",
        ),
        "backfill": ("compose.backfill.command", "make blocks of Prometheus from request logs"),
        "traces": ("exporters.analysis.traces.command", "keep the spans of the last hour, and show them as pages"),
    },
    "test": {
        "load": ("loadgen.command", "generate open-loop mixed traffic and report the results"),
        "experiment": ("compose.experiments.command", "measure engine configurations under the same requests"),
    },
    "lab": {
        "demo": ("compose.demo.command", "show an SLO burn, the page, a config change and the resolved alert"),
        "up": ("compose.lab.up", "run the whole lab without containers"),
        "simulate": ("compose.simulation.command", "run a simulated vLLM, for machines without a GPU"),
    },
}
"""Module and summary of each command, by task, in the order in which a newcomer needs them."""

COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

EXIT_STATUSES = {
    0: "success",
    1: "checked, and not good: a check failed, a run is invalid, a wait has timed out",
    2: "wrong usage, a file that cannot be read or has mistakes, or a program that is missing",
    3: "a server could not be reached: sidecar, engine, Prometheus or Alertmanager; in `doctor` a failed check (1)",
}
SIGNAL_STATUS = (
    "128 + N: ended by signal N, such as 130 by ctrl-c; a server that a signal stops as intended exits with 0"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_while_importing)
    try:
        return _command(words[0] if words else None, words[1:])
    except UsageError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:  # the reader of the output has exited, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return _interrupted()


def _interrupted() -> int:
    print(f"{PROGRAM}: interrupted", file=sys.stderr)
    return 128 + signal.SIGINT


def _end_while_importing(_signal: int, _frame: FrameType | None) -> NoReturn:
    """End at once, as CPython drops a KeyboardInterrupt that is raised in a callback of its import machinery."""
    os._exit(_interrupted())


def _command(name: str | None, words: Sequence[str]) -> int:
    if name in COMMANDS:
        return _run(name, parser(name).parse_args(words))
    if name in {"-h", "--help"}:
        print(overview())
    elif name == "--version":
        print(f"{PROGRAM} {_version()}")
    else:
        from exporters.text.yaml_reader import nearest  # noqa: PLC0415 - imports YAML, which only an error needs

        reason = f"{name!r} is not a command; {nearest(name, COMMANDS)}" if name else "give a command"
        raise UsageError(f"{reason}\nsee: {PROGRAM} --help")
    return 0


def parser(name: str) -> CommandParser:
    """The parser of a command.

    Raises:
        UsageError: a package that it needs is not installed.
    """
    module, text = COMMANDS[name]
    command = CommandParser(prog=f"{PROGRAM} {name}", description=text[0].upper() + text[1:] + ".")
    _import(module).configure(command)
    return command


def overview() -> str:
    """The help of the program: every command by task."""
    lines = ["Observability and SLO alerting for vLLM.", "", f"usage: {PROGRAM} COMMAND [FLAGS]"]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {name:<11} {text}" for name, (_, text) in commands.items())]
    return "\n".join(
        [
            *lines,
            "",
            f"'{PROGRAM} COMMAND --help' describes a command; --version prints the version.",
            "Every flag has an environment variable: VLLM_SLO_LISTEN sets --listen.",
            "Exit status: 0 success, 1 checked and not good, 2 wrong usage or file, 3 unreachable.",
        ]
    )


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - slow, and only this needs it

    return version(PROGRAM)


def _run(name: str, arguments: Namespace) -> int:
    """Run the command; some import what only their run needs, such as Locust, when they run."""
    if signal.getsignal(signal.SIGINT) is _end_while_importing:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return int(arguments.run(arguments))
    except ModuleNotFoundError as error:
        raise _missing_extra(COMMANDS[name][0], error) from error


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise _missing_extra(module, error) from error


def _missing_extra(module: str, error: ModuleNotFoundError) -> UsageError:
    """What to install for the command of this module; raises `error` if it is here and a module of ours is missing."""
    folder = module.split(".", maxsplit=1)[0]
    missing = (error.name or "").split(".", maxsplit=1)[0]
    if module == error.name or module.startswith(f"{error.name}."):
        return UsageError("the image of the sidecar does not have this command; use the image vllm-slo-tools")
    if missing in {"exporters", "alerts", "dashboards", "loadgen", "compose"}:
        raise error
    extra = {"exporters": "sidecar", "dashboards": "dashboards", "loadgen": "loadgen"}.get(folder, "lab")
    return UsageError(
        f"the package {missing!r} is not installed; this command needs the extra {extra!r}; "
        f"in the clone of {PROGRAM}: pip install '.[{extra}]'"
    )
