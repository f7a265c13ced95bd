"""The figures of GPUs' datasheets, from a YAML file."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from exporters.text.errors import UsageError
from exporters.text.yaml_reader import Node, open_yaml

SHIPPED = Path(__file__).parent / "gpus.yaml"
_MIG = re.compile(
    r"(?P<gpu>.*?)[\s-]+(?:mig[\s-]+)?(?P<profile>(?P<slices>[12347])g\.(?P<memory>\d+)gb)", re.IGNORECASE
)
_COMPUTE_SLICES, _MEMORY_SLICES = 7, 8
"""Slices of a GPU (NVIDIA Multi-Instance GPU User Guide); an instance has 1, 2, 4 or 8 of those of memory."""
_WIDER = {(1, 2): 26 / 132, (3, 4): 60 / 132}
"""The share of the multiprocessors, if it is more than the slices, by slices of compute and of memory: H100, as
`nvidia-smi mig -lgip` lists its profiles 1g.20gb and 3g.40gb."""
_VENDORS = re.compile(r"nvidia|amd|instinct|tesla|[^a-z0-9]")


class Dtype(StrEnum):
    """A number format of weights, KV cache or matrix products."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"
    INT4 = "int4"

    @property
    def bytes(self) -> float:
        """Bytes per number, without the scales of quantised groups (a few percent for 4 bits)."""
        return int(re.sub(r"\D", "", self)) / 8


@dataclass(frozen=True, slots=True)
class Gpu:
    """Bytes, bytes per second, and dense FLOP per second for each dtype that the tensor cores multiply."""

    name: str
    memory: float
    bandwidth: float
    flops: Mapping[Dtype, float]
    source: str
    supports_mig: bool = False

    def instance(self, profile: str, slices: int, memory_gb: int) -> "Gpu":
        """A MIG instance, such as 1g.10gb, with the share of its slices.

        Its compute is an upper limit: most profiles have fewer multiprocessors: 16 of 132 for 1g.10gb of an H100.

        Raises:
            UsageError: the GPU has no such profile.
        """
        whole = self.memory / 2**30
        parts = next((n for n in (1, 2, 4, 8) if round(whole * n / _MEMORY_SLICES) == memory_gb), None)
        if not self.supports_mig or parts is None:
            sizes = ", ".join(f"{round(whole * n / _MEMORY_SLICES)} GB" for n in (1, 2, 4, 8))
            raise UsageError(
                f"--gpu: the {self.name} has no MIG profile {profile}; "
                + (f"its instances have {sizes}" if self.supports_mig else "it has no MIG")
            )
        memory, compute = parts / _MEMORY_SLICES, max(slices / _COMPUTE_SLICES, _WIDER.get((slices, parts), 0.0))
        return replace(
            self,
            name=f"{self.name} {profile}",
            memory=self.memory * memory,
            bandwidth=self.bandwidth * memory,
            flops={dtype: rate * compute for dtype, rate in self.flops.items()},
            source=f"{self.source}; slices: {slices} of {_COMPUTE_SLICES}, {parts} of {_MEMORY_SLICES} of the memory",
            supports_mig=False,
        )


def read_gpus(path: Path) -> tuple[Gpu, ...]:
    """The GPUs of a file in the form of the shipped one.

    Raises:
        UsageError: the file cannot be read or has mistakes; the message lists all of them.
    """
    reader = open_yaml(path)
    top = reader.node().fields(("gpus",), required=("gpus",))
    gpus = [_gpu(node) for node in top["gpus"].items()] if "gpus" in top else []
    reader.finish()
    return tuple(gpu for gpu in gpus if gpu is not None)


def find_gpu(name: str, gpus: Iterable[Gpu]) -> Gpu:
    """The GPU with this name, in any common spelling: `NVIDIA H200`, `h200`, `rtx-6000-ada`, `H100 1g.10gb`.

    Raises:
        UsageError: the name is unknown, or the GPU has no such MIG profile.
    """
    if match := _MIG.fullmatch(name.strip()):
        whole = find_gpu(match["gpu"], gpus := tuple(gpus))
        return whole.instance(match["profile"].lower(), int(match["slices"]), int(match["memory"]))
    by_name = {_normalise_name(gpu.name): gpu for gpu in gpus}
    if gpu := by_name.get(_normalise_name(name)):
        return gpu
    close = difflib.get_close_matches(_normalise_name(name), by_name, n=1)
    guess = f"did you mean {by_name[close[0]].name!r}? " if close else ""
    names = ", ".join(gpu.name for gpu in by_name.values())
    raise UsageError(f"--gpu: {name!r} is unknown; {guess}known: {names}; define others with --gpu-file FILE")


def _normalise_name(name: str) -> str:
    return _VENDORS.sub("", name.lower())


def _gpu(node: Node) -> Gpu | None:
    keys = ("name", "memory_gib", "bandwidth_gb_s", "tflops", "source")
    fields = node.fields((*keys, "mig"), required=keys)
    if not set(keys) <= fields.keys():
        return None
    name, source = fields["name"].text(), fields["source"].text()
    memory, bandwidth = fields["memory_gib"].number(least=1), fields["bandwidth_gb_s"].number(least=1)
    tflops = {
        dtype: rate
        for dtype, entry in fields["tflops"].fields(Dtype).items()
        if (rate := entry.number(least=1)) is not None
    }
    if name is None or source is None or memory is None or bandwidth is None:
        return None
    flops = {Dtype(key): rate * 1e12 for key, rate in tflops.items()}
    supports_mig = "mig" in fields and fields["mig"].boolean() is True
    return Gpu(name, memory * 2**30, bandwidth * 1e9, flops, source, supports_mig)
