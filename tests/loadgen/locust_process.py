"""Starts Locust with the project's locustfile, alone or as master and workers, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from tests.loadgen.load_process import ROOT
from tests.support.ports import free_port


@contextmanager
def locust(variables: Mapping[str, str], *flags: str, output: IO[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """`locust` with VLLM_SLO_* variables, by their names without the prefix; killed at the end."""
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadgen" / "locustfile.py"), *flags]
    environment = os.environ | {f"VLLM_SLO_{name.upper()}": value for name, value in variables.items()}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=output or subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def cluster(
    log: Path, variables: Mapping[str, str], *flags: str, of_workers: Sequence[Mapping[str, str]] = ({}, {})
) -> Iterator[tuple[subprocess.Popen[str], list[subprocess.Popen[str]]]]:
    """A master, which writes to `log`, and its workers, which have no target and may have other variables."""
    port = str(free_port())
    bound = ("--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", str(len(of_workers)))
    joined = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
    with ExitStack() as stack:
        output = stack.enter_context(log.open("w"))
        master = stack.enter_context(locust(variables, "--master", *bound, *flags, output=output))
        common = {name: value for name, value in variables.items() if name != "target"}
        workers = [stack.enter_context(locust({**common, **own}, *joined)) for own in of_workers]
        yield master, workers
