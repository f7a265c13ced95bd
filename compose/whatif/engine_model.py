"""The engine to simulate, from flags: a preset by name, one from a file, or the model and its GPU."""

import argparse
from pathlib import Path

from compose.simulator.presets.preset import DEFAULT_PRESET, PRESETS
from compose.simulator.presets.preset_file import Calibration, read_preset
from compose.simulator.presets.step_terms import preset_of
from compose.whatif.combinations import Base
from exporters.analysis.roofline.formulas import Setup
from exporters.analysis.roofline.gpus import SHIPPED, Dtype, find_gpu, read_gpus
from exporters.analysis.roofline.model_shape import read_shape
from exporters.text.errors import UsageError


def add_engine_model(parser: argparse.ArgumentParser) -> None:
    """Declare --preset, --preset-file, and --gpu with --model-config and --dtype."""
    parser.add_argument(
        "--preset",
        choices=[*PRESETS],
        metavar="NAME",
        help=f"GPU and model: {', '.join(PRESETS)} (default: {DEFAULT_PRESET}, without --gpu)",
    )
    parser.add_argument(
        "--preset-file",
        type=Path,
        metavar="FILE",
        help="GPU and model as `vllm-slo simulate --calibrate` has fitted them, instead of --preset",
    )
    parser.add_argument("--gpu", metavar="NAME", help="GPU, such as H100; with --model-config instead of --preset")
    parser.add_argument("--model-config", type=Path, metavar="FILE", help="the model's config.json, with --gpu")
    parser.add_argument(
        "--dtype",
        choices=[*map(str, Dtype)],
        default="bf16",
        metavar="DTYPE",
        help="dtype of weights and matrix products, with --gpu (default %(default)s)",
    )


def engine_model(arguments: argparse.Namespace) -> tuple[Base, Calibration | None]:
    """The engine, and what it was fitted to if it is from a file.

    Raises:
        UsageError: a mistake in the flags or their files.
    """
    calculated = arguments.gpu is not None or arguments.model_config is not None
    if sum((calculated, arguments.preset is not None, arguments.preset_file is not None)) > 1:
        raise UsageError("--preset: give --preset, --preset-file, or --gpu with --model-config; not more than one")
    if arguments.preset_file is not None:
        content = read_preset(arguments.preset_file)
        return Base(content.preset), content.calibration
    if not calculated:
        return Base(PRESETS[arguments.preset or DEFAULT_PRESET]), None
    if arguments.gpu is None or arguments.model_config is None:
        raise UsageError("--gpu: give --gpu and --model-config together, or --preset")
    gpus, dtype = read_gpus(SHIPPED), Dtype(arguments.dtype)
    setup = Setup(
        gpu=find_gpu(arguments.gpu, gpus),
        shape=read_shape(arguments.model_config),
        dtype=dtype,
        weight_dtype=dtype,
        kv_dtype=Dtype.BF16,
    )
    name = arguments.model_config.parent.name or "model"
    return Base(preset_of(setup, name=setup.gpu.name, model=name), setup, gpus), None
