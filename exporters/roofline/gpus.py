"""The GPUs that are known: what their datasheets promise, read from a small file."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from exporters.errors import UsageError
from exporters.yaml_reader import Node, open_yaml

SHIPPED = Path(__file__).parent / "gpus.yaml"
_MAKERS = re.compile(r"nvidia|amd|instinct|tesla|[^a-z0-9]")


class Dtype(StrEnum):
    """How a number is kept."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"
    INT4 = "int4"

    @property
    def bytes(self) -> float:
        """Without the scales of quantised groups, which add a few percent to 4 bits."""
        return int(re.sub(r"\D", "", self)) / 8


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card: bytes, bytes per second, and dense FLOP per second of each dtype that its tensor cores multiply."""

    name: str
    memory: float
    bandwidth: float
    flops: Mapping[Dtype, float]
    source: str


def read_gpus(path: Path) -> tuple[Gpu, ...]:
    """The cards of a file such as the shipped one.

    Raises:
        UsageError: the file cannot be read, or has mistakes: all of them.
    """
    reader = open_yaml(path)
    top = reader.node().fields(("gpus",), required=("gpus",))
    found = [_gpu(node) for node in top["gpus"].items()] if "gpus" in top else []
    reader.finish()
    return tuple(gpu for gpu in found if gpu is not None)


def find_gpu(name: str, gpus: Iterable[Gpu]) -> Gpu:
    """The card of this name, however it is written: `NVIDIA H200`, `h200`, `rtx-6000-ada`.

    Raises:
        UsageError: there is none.
    """
    known = {_bare(gpu.name): gpu for gpu in gpus}
    if found := known.get(_bare(name)):
        return found
    near = difflib.get_close_matches(_bare(name), known, n=1)
    guess = f"did you mean {known[near[0]].name!r}? " if near else ""
    names = ", ".join(gpu.name for gpu in known.values())
    raise UsageError(f"--gpu: {name!r} is unknown; {guess}known: {names}; others with --gpu-file FILE")


def _bare(name: str) -> str:
    return _MAKERS.sub("", name.lower())


def _gpu(node: Node) -> Gpu | None:
    keys = ("name", "memory_gib", "bandwidth_gb_s", "tflops", "source")
    found = node.fields(keys, required=keys)
    if len(found) < len(keys):
        return None
    name, source = found["name"].text(), found["source"].text()
    memory, bandwidth = _amount(found["memory_gib"]), _amount(found["bandwidth_gb_s"])
    tflops = {
        dtype: rate for dtype, entry in found["tflops"].fields(Dtype).items() if (rate := _amount(entry)) is not None
    }
    if name is None or source is None or memory is None or bandwidth is None:
        return None
    return Gpu(name, memory * 2**30, bandwidth * 1e9, {Dtype(key): rate * 1e12 for key, rate in tflops.items()}, source)


def _amount(node: Node) -> float | None:
    value = node.number(least=1)
    if value == math.inf:
        node.problem(f"expected a number of at least 1, found {node.quoted()}")
        return None
    return value
