"""Checks of programs on PATH: Docker with Compose, and `nvidia-smi` for the driver and the clocks of the GPUs."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from compose.doctor.finding import Finding, State, Unread

_TIMEOUT = 2.5

LEAST_COMPOSE = (2, 24)
"""`compose.gpu.yaml` and others use `!override`, which is new in 2.24.4."""

LEAST_DRIVER = 525
"""The first branch that runs programs of CUDA 12 (NVIDIA, CUDA Compatibility, minor version compatibility)."""

CUDA_13_DRIVER = 580
"""The first branch that runs programs of CUDA 13 (as above)."""

# The older name, which drivers since 535 also accept; they call it clocks_event_reasons.active.
_GPU_FIELDS = (
    "index,name,driver_version,clocks_throttle_reasons.active,persistence_mode,power.limit,power.default_limit"
)
_GPU_QUERY = (f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits")

_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of the reasons (nvml.h, `nvmlClocksEventReason*`) that lower the clocks because of a fault or of heat."""

_CLOCK_SETTING, _POWER_CAP = 0x02, 0x04


class GpuReading(NamedTuple):
    """A row of nvidia-smi; `reasons` are the bits of what lowers the clocks, in hexadecimal, the limits are watts."""

    number: str
    name: str
    driver: str
    reasons: str
    persistence: str
    power_limit: str
    usual_power_limit: str


def docker() -> Finding:
    """The versions of Docker Engine and Compose."""
    looked_at = "docker version, docker compose version"
    if shutil.which("docker") is None:
        return Unread(
            "docker is not on PATH; only `docker compose up` needs it", "install Docker Engine, or use vllm-slo up"
        ).not_checked(looked_at)
    cost = "the lab in containers does not start; `vllm-slo up` does"
    compose = _output("docker", "compose", "version", "--short")
    engine = _output("docker", "version", "--format", "{{.Server.Version}}")
    if isinstance(compose, Unread):
        return Finding(State.WARNING, looked_at, compose.reason, cost, "install the plugin docker-compose-plugin")
    version = re.match(r"v?(\d+)\.(\d+)", compose)
    if version is None:
        return Unread(f"{compose[:80]!r} is not a version of Compose").not_checked(looked_at)
    if (int(version[1]), int(version[2])) < LEAST_COMPOSE:
        least = ".".join(map(str, LEAST_COMPOSE))
        return Finding(
            State.WARNING,
            looked_at,
            f"Compose {compose} is older than {least}",
            cost,
            f"install Compose {least} or newer",
        )
    if isinstance(engine, Unread):
        return Finding(State.WARNING, looked_at, engine.reason, cost, "systemctl start docker")
    return Finding(State.OK, looked_at, f"Docker {engine}, Compose {compose}")


def gpu_driver(gpus: Sequence[GpuReading] | Unread) -> Finding:
    """The version of the driver."""
    looked_at = "nvidia-smi"
    if isinstance(gpus, Unread):
        return gpus.not_checked(looked_at)
    drivers = sorted({gpu.driver for gpu in gpus})
    found = f"{len(gpus)} x {gpus[0].name}, driver {', '.join(drivers)}"
    fix = f"apt-get install nvidia-driver-{CUDA_13_DRIVER}-server, or the package of your system"
    branch = min(int(driver.partition(".")[0]) for driver in drivers)
    if branch < LEAST_DRIVER:
        return Finding(State.FAILED, looked_at, found, "vLLM does not start: CUDA 12 needs driver 525 or newer", fix)
    if branch < CUDA_13_DRIVER:
        cost = f"builds of vLLM for CUDA 13 do not start: they need driver {CUDA_13_DRIVER} or newer"
        return Finding(State.WARNING, looked_at, found, cost, fix)
    return Finding(State.OK, looked_at, found)


def gpu_clocks(gpus: Sequence[GpuReading] | Unread) -> Finding:
    """Whether heat, power or a fault lowers the clocks at this moment."""
    looked_at = "nvidia-smi, clocks_throttle_reasons.active"
    if isinstance(gpus, Unread):
        return gpus.not_checked(looked_at)
    if unknown := [gpu.number for gpu in gpus if not gpu.reasons.startswith("0x")]:
        return Unread(f"GPU {', '.join(unknown)} does not report it").not_checked(looked_at)
    masks = {gpu.number: int(gpu.reasons, 16) for gpu in gpus}
    slow = [
        f"GPU {index}: {', '.join(text for bit, text in _SLOWDOWNS.items() if mask & bit)}"
        for index, mask in masks.items()
        if mask & sum(_SLOWDOWNS)
    ]
    details = "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"
    if slow:
        cost = "the GPU computes at a fraction of its clocks: requests are slow, and a measurement is not repeatable"
        return Finding(State.FAILED, looked_at, "; ".join(slow), cost, details)
    capped = [index for index, mask in masks.items() if mask & _POWER_CAP]
    if capped:
        cost = "under load this is usual; compare runs only at the same power limit"
        return Finding(State.WARNING, looked_at, f"GPU {', '.join(capped)}: at the power limit", cost, details)
    limited = [index for index, mask in masks.items() if mask & _CLOCK_SETTING]
    if limited:
        found = f"GPU {', '.join(limited)}: a setting limits the clocks"
        cost = "requests are slower than the GPU allows; compare runs only at the same clocks"
        return Finding(State.WARNING, looked_at, found, cost, "nvidia-smi -rgc; nvidia-smi -rac")
    return Finding(State.OK, looked_at, f"no slowdown at this moment on {len(gpus)} GPUs")


def gpu_settings(gpus: Sequence[GpuReading] | Unread) -> Finding:
    """Whether the driver keeps the GPUs initialised, and may use their full power."""
    looked_at = "nvidia-smi, persistence_mode and power.limit"
    if isinstance(gpus, Unread):
        return gpus.not_checked(looked_at)
    found, costs, fixes = [], [], []
    if unloaded := [gpu.number for gpu in gpus if gpu.persistence == "Disabled"]:
        found.append(f"GPU {', '.join(unloaded)}: persistence mode is off")
        costs.append("without a process on the GPU, the driver forgets its settings, and the next start takes longer")
        fixes.append("nvidia-smi -pm 1")
    limits = {gpu.number: (_watts(gpu.power_limit), _watts(gpu.usual_power_limit)) for gpu in gpus}
    if limited := [f"GPU {number}: {now:g} W of {usual:g} W" for number, (now, usual) in limits.items() if now < usual]:
        found.append(f"power limit of {'; '.join(limited)}")
        costs.append("the clocks fall under load; compare runs only at the same power limit")
        fixes.append(f"nvidia-smi -pl {max(usual for _, usual in limits.values()):g}")
    if found:
        return Finding(State.WARNING, looked_at, "; ".join(found), "; ".join(costs), "; ".join(fixes))
    return Finding(State.OK, looked_at, f"persistence mode and full power on {len(gpus)} GPUs")


def _watts(text: str) -> float:
    """The power limit; 0 if the GPU does not report one."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def read_gpus() -> list[GpuReading] | Unread:
    """The GPUs of this machine, at least one."""
    if shutil.which("nvidia-smi") is None:
        return Unread("nvidia-smi is not on PATH", "vllm-slo doctor, on the machine of the engine")
    output = _output("nvidia-smi", *_GPU_QUERY)
    if isinstance(output, Unread):
        return output
    rows = [tuple(field.strip() for field in line.split(",")) for line in output.splitlines()]
    gpus = [
        GpuReading(*row) for row in rows if len(row) == len(GpuReading._fields) and row[2].partition(".")[0].isdecimal()
    ]
    if not gpus or len(gpus) < len(rows):
        return Unread(f"nvidia-smi: unexpected output {output[:80]!r}", "nvidia-smi " + " ".join(_GPU_QUERY))
    return gpus


def _output(*command: str) -> str | Unread:
    """The standard output of a command that succeeds within the timeout."""
    fix = " ".join(command)
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return Unread(f"{command[0]}: no output within {_TIMEOUT:g} s", fix)
    except OSError as error:
        return Unread(f"{command[0]} cannot be started: {error.strerror}", fix)
    if result.returncode:
        lines = (result.stderr.strip() or result.stdout.strip() or f"exit status {result.returncode}").splitlines()
        return Unread(f"{command[0]}: {lines[0]}", fix)
    return result.stdout.strip()
