"""`vllm-slo simulate`: runs a simulated vLLM until a signal stops it, or fits one to a request log."""

import argparse
import asyncio
import gzip
import signal
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import uvloop

from compose.experiments.cells.engine_samples import parse_sample
from compose.simulator.api.restarting_server import Simulator, SimulatorConfig
from compose.simulator.engine.flags import (
    NAMES,
    POLICY,
    SWITCHES,
    SchedulingPolicy,
    apply_changes,
    preset_flags,
)
from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import BLOCK_SIZE
from compose.simulator.presets.preset_file import CalibratedPreset, write_preset
from compose.simulator.presets.variants import FP8_KV_CACHES, QUANTIZED_WEIGHTS, Variant, vary
from compose.whatif.combinations import combinations
from compose.whatif.engine_model import add_engine_model, engine_model
from compose.whatif.log_fit import fit_log
from compose.whatif.recorded_traffic import read_traffic
from exporters.text.addresses import parse_address
from exporters.text.command_flags import Option, add_fields, add_request_logs
from exporters.text.errors import UsageError, parse_flag
from exporters.text.logs import add_logging_flags, configure_logging

_RECORDED = ("num_gpu_blocks", "block_size", "enable_prefix_caching")
"""Settings of a simulated engine that are labels of vllm:cache_config_info."""
_HELP = {
    "scheduling_policy": "order of waiting requests: fcfs, or by the `priority` of their bodies, lower values first "
    "(default: fcfs)",
    "max_num_seqs": "maximum number of running requests (default: the preset's)",
    "max_num_batched_tokens": "maximum number of tokens per step (default: the preset's)",
    "num_gpu_blocks": "number of KV cache blocks (default: the preset's)",
    "block_size": f"tokens per KV cache block (default: {BLOCK_SIZE})",
    "max_model_len": "maximum length of prompt and completion, in tokens (default: the preset's)",
    "enable_prefix_caching": "reuse the KV cache blocks of common prompt prefixes (default: on)",
    "enable_chunked_prefill": "compute a prompt in several steps (default: on)",
    "scheduler_reserve_full_isl": "admit a request only if its whole prompt fits in the KV cache, not only its first "
    "chunk (default: on)",
    "seed": "seed of completion lengths and texts (default: 0)",
    "response_cache": "answer a request that repeats an earlier body without the engine (default: off)",
    "outage_after": "seconds from the first start to an outage (default: 0)",
    "outage_seconds": "length of the outage, in which connections are refused; 0: none (default: 0)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateFlags:
    """The flags of the preset, the server and the calibration, beside those of `EngineFlags`."""

    quantization: Annotated[str | None, Option(None, choices=tuple(QUANTIZED_WEIGHTS))] = None
    """smaller weights and a larger KV cache; awq dequantizes in each step, so it is slower (default: none)"""
    kv_cache_dtype: Annotated[str | None, Option(None, choices=("auto", *FP8_KV_CACHES))] = None
    """8 bits for twice the tokens in the KV cache; refused, as by vLLM, on a GPU without FP8 (default: the preset's)"""
    gpu_memory_utilization: Annotated[str | None, Option("SHARE")] = None
    """share of the memory of the GPU, for the size of the KV cache (default: the preset's)"""
    speculative_config: Annotated[str | None, Option("JSON")] = None
    """speculative decoding, such as '{"method": "ngram", "num_speculative_tokens": 5}' (default: off)"""
    restart_seconds: Annotated[float, Option("SECONDS", float)] = 1.0
    """time between stop and start after POST /simulator/config (default: %(default)s)"""
    invalid_output: Annotated[float, Option("SHARE", float)] = 0.0
    """share of the JSON outputs and tool calls that are not valid, from 0 to 1 (default: %(default)s)"""
    calibrate: bool = False
    """serve nothing: fit the speed of memory and arithmetic to --request-log, and write the preset to --out"""
    engine_metrics: Annotated[Path | None, Option("FILE", Path)] = None
    """the engine's /metrics during the log, with --calibrate: size and prefix caching of its KV cache; also compressed
    by gzip (default: the preset's)"""
    out: Annotated[Path | None, Option("FILE", Path)] = None
    """file for the fitted preset, for --preset-file"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags, with vLLM's names."""
    parser.add_argument(
        "--listen", default="127.0.0.1:8000", metavar="HOST:PORT", help="listen address (default: %(default)s)"
    )
    add_engine_model(parser)
    parser.add_argument("--model", metavar="NAME", help="model name in the API (default: the preset's)")
    for name in NAMES:
        flag = f"--{name.replace('_', '-')}"
        if name == POLICY:
            parser.add_argument(flag, choices=[*SchedulingPolicy], help=_HELP[name])
        elif name in SWITCHES:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=_HELP[name])
        else:
            parser.add_argument(flag, type=int, metavar="N", help=_HELP[name])
    parser.add_argument(
        "--enforce-eager",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="no CUDA graphs: more time per step (default: off)",
    )
    add_fields(parser, SimulateFlags)
    add_request_logs(parser)
    add_logging_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; or fit the preset and return."""
    if args.calibrate:
        _calibrate(args)
        return 0
    if unused := [flag for flag in ("request_log", "engine_metrics", "out") if getattr(args, flag)]:
        raise UsageError(f"--{unused[0].replace('_', '-')}: is only used with --calibrate")
    config = configuration(args)
    configure_logging(args.log_level, args.log_format, "simulator")
    uvloop.run(_serve(config))
    return 0


def configuration(args: argparse.Namespace) -> SimulatorConfig:
    """The configuration from parsed flags.

    Raises:
        UsageError: every mistake in the flags.
    """
    host, port = parse_flag("--listen", args.listen, partial(parse_address, example="127.0.0.1:8000"))
    changes, varied = _changes(args), _variants(args)
    base, _ = engine_model(args)
    try:
        preset = vary(base.preset, varied)
        flags = apply_changes(preset_flags(preset), changes)
    except EngineFlagsError as error:
        parts = (mistake.partition(":") for mistake in error.mistakes)
        raise UsageError("\n".join(f"--{name.replace('_', '-')}:{text}" for name, _, text in parts)) from error
    if not 0 <= args.restart_seconds < float("inf"):
        raise UsageError(f"--restart-seconds: {args.restart_seconds} is not a time; use 0 or more seconds")
    if not 0 <= args.invalid_output <= 1:
        raise UsageError(f"--invalid-output: {args.invalid_output} is not a share; use a number from 0 to 1")
    return SimulatorConfig(
        host=host,
        port=port,
        preset=preset,
        model=args.model or preset.model,
        flags=flags,
        restart_seconds=args.restart_seconds,
        invalid_output=args.invalid_output,
    )


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in NAMES if getattr(args, name) is not None}


def _variants(args: argparse.Namespace) -> dict[Variant, str]:
    values = {
        Variant.KV_CACHE_DTYPE: args.kv_cache_dtype,
        Variant.QUANTIZATION: args.quantization,
        Variant.ENFORCE_EAGER: "true" if args.enforce_eager else None,
        Variant.GPU_MEMORY_UTILIZATION: args.gpu_memory_utilization,
        Variant.SPECULATIVE_CONFIG: args.speculative_config,
    }
    return {flag: value for flag, value in values.items() if value is not None}


def _calibrate(args: argparse.Namespace) -> None:
    """Fit the engine of the flags, with the settings that its metrics show, and write it."""
    if not args.request_log or args.out is None:
        raise UsageError("--calibrate: give the log of a load run as --request-log, and --out FILE for the result")
    base, _ = engine_model(args)
    settings = _recorded_settings(args.engine_metrics)
    settings |= {name: str(value).lower() for name, value in _changes(args).items()}
    settings |= {str(name): value for name, value in _variants(args).items()}
    (recorded,) = combinations(base, {name: [value] for name, value in settings.items()}, {})
    traffic = read_traffic([Path(path) for path in args.request_log])
    speed, calibration = fit_log(recorded, traffic, traffic.longest)
    flags = recorded.flags
    preset = replace(
        speed.of(recorded.preset),
        num_gpu_blocks=flags.num_gpu_blocks * flags.block_size // BLOCK_SIZE,
        max_num_seqs=flags.max_num_seqs,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        max_model_len=flags.max_model_len,
    )
    write_preset(args.out, CalibratedPreset(preset=preset, calibration=calibration))


def _recorded_settings(path: Path | None) -> dict[str, str]:
    """The settings in the engine's metrics that a simulated engine can have.

    Raises:
        UsageError: the file cannot be read, or has none of them.
    """
    if path is None:
        return {}
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        labels = parse_sample(text, 0.0).settings
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(f"--engine-metrics: {path}: {error}; give what the engine's /metrics returned") from error
    settings = {name: labels[name].lower() for name in _RECORDED if name in labels}
    if not settings:
        raise UsageError(f"--engine-metrics: {path}: has no vllm:cache_config_info; give the metrics of a vLLM engine")
    return settings


async def _serve(config: SimulatorConfig) -> None:
    simulator = Simulator(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, simulator.stop)
    await simulator.run()
