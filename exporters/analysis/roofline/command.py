"""`vllm-slo roofline`: upper bounds of the throughput and the KV cache of a model on a GPU."""

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from exporters.analysis.roofline.formulas import Drafts, Setup
from exporters.analysis.roofline.gpus import SHIPPED, Dtype, Gpu, find_gpu, read_gpus
from exporters.analysis.roofline.model_shape import MAX_SIZE, read_shape
from exporters.text.command_flags import Option, add_fields, add_format
from exporters.text.errors import UsageError
from exporters.text.units import number
from exporters.vocabulary.ceilings import BATCH, DECODE, KV_TOKENS, PREFILL

BATCHES = (1, 8, 50, 200, 1000)
_DTYPE = Option("DTYPE", choices=[*map(str, Dtype)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """The model and its GPUs, with vLLM's names where vLLM has the same flag."""

    gpu: Annotated[str, Option("NAME")]
    """GPU, such as 'RTX 6000 Ada' or H200"""
    gpu_file: Annotated[Path, Option("FILE", Path)] = SHIPPED
    """YAML file of GPUs (default: the shipped file)"""
    model_config: Annotated[Path, Option("FILE", Path)]
    """the model's config.json"""
    parameters: Annotated[float | None, Option("N", float)] = None
    """number of parameters, such as 14.8e9 (default: counted)"""
    dtype: Annotated[str, _DTYPE] = "bf16"
    """dtype of matrix products (default %(default)s)"""
    weight_dtype: Annotated[str | None, _DTYPE] = None
    """dtype of the weights, such as int4 (default: --dtype)"""
    kv_dtype: Annotated[str, _DTYPE] = "bf16"
    """dtype of the KV cache (default %(default)s)"""
    tensor_parallel: Annotated[int, Option("N", int)] = 1
    """number of GPUs (default %(default)s)"""
    gpu_memory_utilization: Annotated[float, Option("SHARE", float)] = 0.9
    """share of the GPU memory to use (default %(default)s)"""
    context: Annotated[int, Option("TOKENS", int)] = 0
    """tokens of each request in the KV cache; includes attention in the calculation (default: %(default)s)"""


@dataclass(frozen=True, slots=True)
class DraftFlags:
    """Speculative decoding."""

    draft_config: Annotated[Path | None, Option("FILE", Path)] = None
    """the config.json of a draft model or an EAGLE-3 head, in 16 bits (default: no speculative decoding)"""
    draft_tokens: Annotated[int, Option("N", int)] = 3
    """draft tokens of each step (default %(default)s)"""
    acceptance: Annotated[float, Option("SHARE", float)] = 0.7
    """probability that a draft token is accepted if all before it are (default %(default)s)"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_fields(parser, ModelFlags)
    parser.add_argument(
        "--batch",
        action="append",
        default=[],
        metavar="N",
        help=f"number of requests decoded together (repeatable; default: {', '.join(map(str, BATCHES))})",
    )
    add_fields(parser, DraftFlags)
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the bounds; returns 1 if the weights do not fit."""
    gpus = read_gpus(arguments.gpu_file)
    setup = _setup(arguments, gpus)
    batches = [_batch(text) for text in arguments.batch] or BATCHES
    fits = setup.kv_tokens() > 0
    remedies = () if fits else tuple(fitting_changes(setup, gpus))
    if arguments.format == "json":
        print(json.dumps(_document(setup, batches, remedies), indent=2))
    else:
        print("\n".join(_table(setup, batches, remedies)))
    return 0 if fits else 1


def fitting_changes(setup: Setup, gpus: Iterable[Gpu]) -> Iterable[str]:
    """Flags; each of them alone makes weights and KV cache fit."""
    for size in setup.shape.tensor_parallel_sizes:
        if replace(setup, tensor_parallel=size).kv_tokens():
            yield f"--tensor-parallel {size}"
            break
    for dtype in (Dtype.FP8, Dtype.INT4):
        if dtype.bytes < setup.weight_dtype.bytes and replace(setup, weight_dtype=dtype).kv_tokens():
            yield f"--weight-dtype {dtype}"
            break
    for gpu in sorted(gpus, key=lambda gpu: gpu.memory):
        if setup.dtype in gpu.flops and replace(setup, gpu=gpu).kv_tokens():
            yield f"--gpu '{gpu.name}'"
            break


def _setup(arguments: argparse.Namespace, gpus: Sequence[Gpu]) -> Setup:
    gpu = find_gpu(arguments.gpu, gpus)
    dtype = Dtype(arguments.dtype)
    if dtype not in gpu.flops:
        raise UsageError(
            f"--dtype: the datasheet of {gpu.name} has no figure for {dtype}; it has {', '.join(gpu.flops)}; for "
            "smaller weights only, use --weight-dtype"
        )
    parameters, share = arguments.parameters, arguments.gpu_memory_utilization
    if parameters is not None and not 0 < parameters < math.inf:
        raise UsageError(f"--parameters: {parameters:g} is out of range; write a number above 0, such as 14.8e9")
    if not 0 < share <= 1:
        raise UsageError(f"--gpu-memory-utilization: {share:g} is not a share; write a number above 0, at most 1")
    if not 0 <= arguments.context <= MAX_SIZE:
        raise UsageError(f"--context: {arguments.context} is out of range; use 0 to {MAX_SIZE:,} tokens")
    shape, size = read_shape(arguments.model_config, parameters), arguments.tensor_parallel
    if size not in shape.tensor_parallel_sizes:
        sizes = ", ".join(map(str, shape.tensor_parallel_sizes))
        raise UsageError(
            f"--tensor-parallel: {shape.heads} heads and {shape.kv_heads} KV heads cannot be divided among {size} "
            f"GPUs; use one of {sizes}"
        )
    return Setup(
        gpu=gpu,
        shape=shape,
        dtype=dtype,
        weight_dtype=Dtype(arguments.weight_dtype or dtype),
        kv_dtype=Dtype(arguments.kv_dtype),
        tensor_parallel=size,
        utilization=share,
        context=arguments.context,
        drafts=_drafts(arguments),
    )


def _drafts(arguments: argparse.Namespace) -> Drafts | None:
    if arguments.draft_config is None:
        return None
    if not 1 <= arguments.draft_tokens <= MAX_SIZE:
        raise UsageError(f"--draft-tokens: {arguments.draft_tokens} is out of range; use 1 or more, such as 3")
    if not 0 <= arguments.acceptance <= 1:
        raise UsageError(
            f"--acceptance: {arguments.acceptance:g} is not a share; write a number from 0 to 1, such as 0.7"
        )
    return Drafts(read_shape(arguments.draft_config), arguments.draft_tokens, arguments.acceptance)


def _batch(text: str) -> int:
    if not BATCH.fullmatch(text):
        raise UsageError(f"--batch: {text!r} is not a number of requests; use 1 or more")
    return int(text)


def _document(setup: Setup, batches: Sequence[int], remedies: Sequence[str]) -> dict[str, object]:
    return {
        "gpu": setup.gpu.name,
        "tensor_parallel": setup.tensor_parallel,
        "dtype": setup.dtype,
        "weight_dtype": setup.weight_dtype,
        "kv_dtype": setup.kv_dtype,
        "context": setup.context,
        "draft_tokens": setup.drafts.tokens if setup.drafts else 0,
        "parameters": setup.shape.parameters,
        "weight_bytes": setup.weight_bytes(),
        "flop_per_token": setup.flop_per_token(),
        "kv_bytes_per_token": setup.kv_bytes_per_token(),
        PREFILL: setup.prefill_rate(),
        DECODE: {str(batch): setup.decode_rate(batch) for batch in batches},
        KV_TOKENS: setup.kv_tokens(),
        "crossover_batch": setup.crossover(),
        "would_fit": remedies,
    }


def _table(setup: Setup, batches: Sequence[int], remedies: Sequence[str]) -> Iterable[str]:
    gpu, shape, tokens, memory_bound = setup.gpu, setup.shape, setup.kv_tokens(), setup.crossover()
    count = f"{setup.tensor_parallel} x " if setup.tensor_parallel > 1 else ""
    yield (
        f"{'GPU':<16}{count}{gpu.name}: {number(gpu.flops[setup.dtype] / 1e12)} TFLOP/s {setup.dtype}, "
        f"{number(gpu.bandwidth / 1e9)} GB/s, {number(gpu.memory / 2**30)} GiB ({gpu.source})"
    )
    active = f", {shape.active_parameters / 1e9:.2f} B active" if shape.experts else ""
    experts = f", experts {shape.experts.dtype}" if shape.experts and shape.experts.dtype else ""
    yield (
        f"{'Weights':<16}{shape.parameters / 1e9:.2f} B parameters{active}: {setup.weight_bytes() / 1e9:.1f} GB "
        f"({setup.weight_dtype}{experts})"
    )
    if drafts := setup.drafts:
        yield (
            f"{'Drafts':<16}{drafts.tokens} tokens per step by {drafts.shape.parameters / 1e9:.2f} B parameters: "
            f"{drafts.output_per_step:.2f} output tokens per step if {number(100 * drafts.acceptance)} % are accepted"
        )
    yield f"{'FLOP per token':<16}{setup.flop_per_token() / 1e9:.2f} G"
    yield f"{'Prefill':<16}{setup.prefill_rate():,.0f} tok/s"
    kv = f"{setup.kv_bytes_per_token():,.0f} B per token ({setup.kv_dtype})"
    yield f"{'KV cache':<16}{kv}; {f'{tokens:,} tokens fit' if tokens else 'does not fit'}"
    bound = "always memory-bound" if memory_bound is None else f"memory-bound up to batch {memory_bound:,}"
    yield f"{'Decode':<16}{bound}" + (f", with {setup.context:,} tokens each" if setup.context else "")
    yield ""
    yield f"{'batch':>8}{'tok/s':>12}{'each':>10}  limit"
    for batch in batches:
        rate = setup.decode_rate(batch)
        limit = "memory" if setup.is_memory_bound(batch) else "compute"
        over = "; exceeds the KV cache" if tokens and batch * setup.context > tokens else ""
        yield f"{batch:>8,}{rate:>12,.0f}{rate / batch:>10,.1f}  {limit}{over}"
    if remedies or not tokens:
        yield ""
        yield (
            f"The weights do not fit: {setup.weight_bytes() / 1e9:.1f} GB, available "
            f"{setup.usable_memory() / 1e9:.1f} GB ({number(setup.utilization * 100)} % of the memory). "
            f"Would fit: {', or '.join(remedies) or 'no known change'}."
        )
