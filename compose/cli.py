"""The command `vllm-slo`: imports the module of a subcommand and turns errors into messages and exit codes."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from exporters.errors import UsageError

PROGRAM = "vllm-slo"

# Each module has `configure(parser)`, which declares flags and sets `run`, a function of the parsed arguments that
# returns the exit code. Only the module of the chosen command is imported: the load generator's gevent and the
# sidecar's asyncio must never share a process.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("compose.up", "run the whole lab natively: engine, sidecar, Prometheus, Alertmanager, load"),
    "demo": ("compose.demo", "an overload burns an error budget, a page arrives, a config change resolves the alert"),
    "sidecar": ("exporters.sidecar.command", "relay and measure OpenAI-compatible traffic"),
    "flip": ("exporters.sidecar.flip_command", "declare a config change that is not visible from outside the engine"),
    "simulate": ("compose.simulator.command", "serve a simulated vLLM, for a machine without a GPU"),
    "alerts": ("alerts.command", "check and explain the SLO file, render Prometheus rules and Alertmanager routes"),
    "dashboards": ("dashboards.command", "render Grafana dashboards, audit their queries, draw them without Grafana"),
    "load": ("loadgen.command", "offer open-loop mixed traffic and report on it"),
    "compare": ("exporters.comparison.command", "compare the requests before a config change with those after it"),
    "roofline": ("exporters.roofline.command", "the upper limits of a GPU with a model: prefill, decode, KV cache"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0 fine, 1 a check failed, 2 wrong usage or a bad file."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Observability and SLO alerting for vLLM.",
        epilog="Every flag can also be set in the environment: --listen as VLLM_SLO_LISTEN; one that can be repeated "
        "takes a list with commas. "
        f"'{PROGRAM} COMMAND --help' explains one command.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    try:
        for name, (module, text) in COMMANDS.items():
            sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
            if name == chosen:
                _import(module).configure(sub)
                _defaults_from_environment(sub)
        arguments = parser.parse_args(words)
        return int(arguments.run(arguments))
    except UsageError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has ended, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        extra = {"exporters": "sidecar", "dashboards": "dashboards", "loadgen": "loadgen"}.get(
            module.split(".", maxsplit=1)[0], "lab"
        )
        if (error.name or "").split(".", maxsplit=1)[0] in {"exporters", "alerts", "dashboards", "loadgen", "compose"}:
            raise
        raise UsageError(
            f"the package {error.name!r} is not installed; this command needs: pip install 'vllm-slo[{extra}]'"
        ) from error


def _defaults_from_environment(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of a parser's options
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for child in action.choices.values():
                _defaults_from_environment(child)
            continue
        name = f"VLLM_SLO_{action.dest.upper()}"
        value = os.environ.get(name)
        if not action.option_strings or action.dest == "help" or value is None:
            continue
        if isinstance(action, argparse._StoreTrueAction):  # noqa: SLF001
            parser.set_defaults(**{action.dest: value.lower() in {"1", "true", "yes"}})
        else:
            repeatable = isinstance(action, argparse._AppendAction)  # noqa: SLF001
            parser.set_defaults(**{action.dest: value.split(",") if repeatable else value})
            action.required = False
