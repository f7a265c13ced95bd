"""`vllm-slo simulate`: serves a simulated vLLM until a signal stops it."""

import argparse
import asyncio
import signal
from functools import partial
from typing import Any

import uvloop

from compose.simulator.engine_flags import NAMES, SWITCHES, EngineFlagsError, apply_changes, preset_flags
from compose.simulator.presets import DEFAULT_PRESET, PRESETS, Preset
from compose.simulator.restarting_server import Simulator, SimulatorConfig
from exporters.addresses import parse_address
from exporters.errors import UsageError, parse_flag
from exporters.logging_setup import add_logging_flags, configure_logging

_HELP = {
    "max_num_seqs": "maximum of requests in the running batch",
    "max_num_batched_tokens": "maximum of tokens computed in one step",
    "num_gpu_blocks": "blocks of the KV cache",
    "block_size": "tokens in a block",
    "max_model_len": "maximum of tokens of prompt and completion together",
    "enable_prefix_caching": "reuse the blocks of common prompt prefixes (default: on)",
    "enable_chunked_prefill": "compute a prompt in several steps (default: on)",
    "seed": "seed of the lengths and texts of completions",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags, with vLLM's names."""
    parser.add_argument(
        "--listen", default="127.0.0.1:8000", metavar="HOST:PORT", help="where to serve (default: %(default)s)"
    )
    parser.add_argument(
        "--preset",
        default=DEFAULT_PRESET,
        metavar="NAME",
        help=f"card and model: {', '.join(PRESETS)} (default: %(default)s)",
    )
    parser.add_argument("--model", metavar="NAME", help="name the model is served under (default: the preset's)")
    for name in NAMES:
        flag = f"--{name.replace('_', '-')}"
        if name in SWITCHES:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=_HELP[name])
        else:
            parser.add_argument(flag, type=int, metavar="N", help=_HELP[name])
    parser.add_argument(
        "--restart-seconds",
        type=float,
        default=1.0,
        metavar="S",
        help="how long the port stays closed after POST /simulator/config (default: %(default)s)",
    )
    add_logging_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    config = configuration(args)
    configure_logging(args.log_level, args.log_format, "simulator")
    uvloop.run(_serve(config))
    return 0


def configuration(args: argparse.Namespace) -> SimulatorConfig:
    """The configuration that the flags describe.

    Raises:
        UsageError: every mistake in the flags.
    """
    preset = _preset(args.preset)
    host, port = parse_flag("--listen", args.listen, partial(parse_address, example="127.0.0.1:8000"))
    changes: dict[str, Any] = {name: getattr(args, name) for name in NAMES if getattr(args, name) is not None}
    try:
        flags = apply_changes(preset_flags(preset), changes)
    except EngineFlagsError as error:
        raise UsageError("\n".join(_as_flag(mistake) for mistake in error.mistakes)) from error
    if not 0 <= args.restart_seconds < float("inf"):
        raise UsageError(f"--restart-seconds: {args.restart_seconds} is no time; take 0 or more")
    return SimulatorConfig(
        host=host,
        port=port,
        preset=preset,
        model=args.model or preset.model,
        flags=flags,
        restart_seconds=args.restart_seconds,
    )


async def _serve(config: SimulatorConfig) -> None:
    simulator = Simulator(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, simulator.stop)
    await simulator.run()


def _as_flag(mistake: str) -> str:
    name, _, text = mistake.partition(":")
    return f"--{name.replace('_', '-')}:{text}"


def _preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UsageError(f"--preset: there is no {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
