"""The program of a cell's engine: the simulator, vLLM on the CPU, or a command of the user."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from compose.experiments.setup.experiment_file import Engine
from compose.lab.ports import HOST
from compose.lab.services import OURS
from compose.processes.child_processes import Service
from compose.simulator.presets.preset import DEFAULT_PRESET
from compose.vllm_cpu import launch
from compose.vllm_cpu.install import VllmCpu
from exporters.text.errors import UsageError

SIMULATOR = "simulator"
START_SECONDS = 900.0
"""Limit until a command of the user is healthy: loading a model can take minutes."""
_PORT, _NUMBER = "{port}", "{number}"


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """`name` is that of the flag --engine; `vllm` is set for vLLM on the CPU."""

    name: str
    vllm: VllmCpu | None = None

    def service(self, engine: Engine, port: int, number: int = 0) -> Service:
        """The process of an engine of a configuration, on this port of the loopback address; numbers count from 0."""
        of_several = f"-{number}" if number else ""
        flags = words(engine.flags or {})
        ready = f"http://{HOST}:{port}/health"
        if self.vllm is not None:
            return launch.service(self.vllm, HOST, port, *flags, number=number)
        if self.name == SIMULATOR:
            start = (*OURS, "simulate", "--listen", f"{HOST}:{port}", "--preset", engine.preset or DEFAULT_PRESET)
            return Service(name=SIMULATOR + of_several, command=(*start, *flags), ready_url=ready)
        command = tuple(word.replace(_PORT, str(port)).replace(_NUMBER, str(number)) for word in shlex.split(self.name))
        return Service(
            name=f"engine{of_several}",
            command=(*command, *flags),
            ready_url=ready,
            start_timeout=START_SECONDS,
            grace=60,
        )


def check_command(text: str) -> None:
    """Check a command of the user.

    Raises:
        UsageError: it cannot be split, or has no port.
    """
    try:
        shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--engine: {text!r} is not a command: {str(error).lower()}") from error
    if _PORT not in text:
        raise UsageError(
            f"--engine: {text!r} has no {_PORT}; write {SIMULATOR}, {launch.NAME}, or a command such as "
            f"'vllm serve MODEL --port {_PORT}'"
        )


def words(flags: Mapping[str, str]) -> tuple[str, ...]:
    """Flags as words of a command line; `true` and `false` are switches."""
    found: list[str] = []
    for name, value in flags.items():
        match value:
            case "true":
                found.append(f"--{name}")
            case "false":
                found.append(f"--no-{name}")
            case _:
                found += [f"--{name}", value]
    return tuple(found)
