"""`vllm-slo whatif`: what recorded traffic would get from other settings of the engine."""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from compose.experiments.report.tables import Grid, print_grid
from compose.simulator.engine.presets import DEFAULT_PRESET, PRESETS
from compose.simulator.engine.step_terms import preset_of
from compose.whatif.calibration import Speed, calibrate, residuals
from compose.whatif.combinations import SETTINGS, Base, Combination, combinations, parse_settings
from compose.whatif.prediction import VALIDATED, Errors, Prediction, predict, replay
from compose.whatif.recorded_traffic import Attainment, RecordedTraffic, read_traffic
from exporters.analysis.roofline.formulas import Setup
from exporters.analysis.roofline.gpus import SHIPPED, Dtype, find_gpu, read_gpus
from exporters.analysis.roofline.model_shape import read_shape
from exporters.text.command_flags import add_format, add_request_logs
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_duration, spell_duration
from exporters.vocabulary.slo_file import add_flag, load
from loadgen.results.record import Record

TOLERANCE = 0.1
"""Difference of a share of good requests beyond its interval from which the prediction is not to be trusted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; settings have vLLM's names."""
    add_request_logs(parser, required=True)
    add_flag(parser)
    parser.add_argument(
        "--try",
        action="append",
        default=[],
        dest="tried",
        metavar="NAME=VALUE[,VALUE...]",
        help=f"a setting and its values to try, each with all others (repeatable): {', '.join(SETTINGS)}",
    )
    parser.add_argument(
        "--recorded",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the engine while the log was written (repeatable; default: the preset's)",
    )
    parser.add_argument(
        "--preset",
        choices=[*PRESETS],
        metavar="NAME",
        help=f"GPU and model of the log: {', '.join(PRESETS)} (default: {DEFAULT_PRESET}, without --gpu)",
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help="GPU of the log, such as H100; with --model-config instead of --preset"
    )
    parser.add_argument("--model-config", type=Path, metavar="FILE", help="the model's config.json")
    parser.add_argument(
        "--dtype",
        choices=[*map(str, Dtype)],
        default="bf16",
        metavar="DTYPE",
        help="dtype of weights and matrix products, with --gpu (default %(default)s)",
    )
    parser.add_argument(
        "--timeout", metavar="TIME", help="time after which clients give up (default: the longest request of the log)"
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="first fit the speed of memory and arithmetic to the latencies of the log; what remains is the error",
    )
    parser.add_argument(
        "--gpu-hour-price", type=float, metavar="X", help="price of one GPU hour: show the cost (default: none)"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: all cores)")
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the attainment of each combination; returns 1 if the log contradicts that for its own settings."""
    slos = load(Path(arguments.slos))
    tried = parse_settings("--try", arguments.tried)
    base, recorded = _base(arguments), parse_settings("--recorded", arguments.recorded)
    every = combinations(base, recorded, tried)
    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError(f"--jobs: {arguments.jobs} is not a number of processes; write 1 or more")
    timeout = None if arguments.timeout is None else parse_flag("--timeout", arguments.timeout, parse_duration)
    traffic = read_traffic([Path(path) for path in arguments.request_log])
    timeout, errors = timeout or traffic.longest, VALIDATED
    if arguments.calibrate:
        base, errors = _calibrated(
            base, every[0], traffic, partial(replay, traffic=traffic, slos=slos, timeout=timeout)
        )
        every = combinations(base, recorded, tried)
    found = _predict_all(
        every, partial(predict, traffic=traffic, slos=slos, timeout=timeout, errors=errors), arguments.jobs
    )
    contradicted = [*_contradictions(traffic.attained, found[0])]
    if arguments.format == "json":
        print(json.dumps(_document(traffic, found, contradicted, errors, arguments.gpu_hour_price), indent=2))
    else:
        _show(traffic, found, contradicted, errors, arguments.gpu_hour_price)
    return 1 if contradicted else 0


def _base(arguments: argparse.Namespace) -> Base:
    if arguments.gpu is None and arguments.model_config is None:
        return Base(PRESETS[arguments.preset or DEFAULT_PRESET])
    if arguments.gpu is None or arguments.model_config is None or arguments.preset is not None:
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
    return Base(preset_of(setup, name=setup.gpu.name, model=name), setup, gpus)


def _calibrated(
    base: Base,
    recorded: Combination,
    traffic: RecordedTraffic,
    simulate: Callable[[Combination], tuple[list[Record], float]],
) -> tuple[Base, Errors]:
    """The base at the speed that the log shows, and the errors that remain."""

    def at(speed: Speed) -> list[Record]:
        print(f"memory x {speed.memory:.2f}, arithmetic x {speed.compute:.2f}", file=sys.stderr)
        return simulate(replace(recorded, preset=speed.of(recorded.preset)))[0]

    speed = calibrate(at, traffic.measured)
    left = residuals(at(speed), traffic.measured)
    print(
        f"calibrated: memory x {speed.memory:.2f}, arithmetic x {speed.compute:.2f}; median errors of {left.requests} "
        f"requests: TTFT {left.ttft:.0%}, TPOT {left.tpot:.0%}",
        file=sys.stderr,
    )
    return replace(base, speed=speed), Errors(left.ttft, left.tpot)


def _predict_all(
    every: Sequence[Combination], one: Callable[[Combination], Prediction], jobs: int | None
) -> list[Prediction]:
    """The predictions in the order of the combinations, with progress on standard error."""
    found: dict[int, Prediction] = {}
    # `spawn` copies no state of this process: the same result on all systems.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        pending = {pool.submit(one, each): number for number, each in enumerate(every)}
        for done in as_completed(pending):
            found[pending[done]] = done.result()
            print(f"{len(found)} of {len(every)}: {every[pending[done]].name}", file=sys.stderr)
    return [found[number] for number in range(len(every))]


def _contradictions(recorded: Mapping[str, Attainment], predicted: Prediction) -> Iterator[str]:
    """The classes of which the log says something else than the prediction for its settings."""
    for name, attained in recorded.items():
        if name in predicted.attained:
            low, high = predicted.interval(name)
            if not low - TOLERANCE <= attained.share <= high + TOLERANCE:
                yield f"{name}: {_percent(attained)} recorded, {_percent(predicted.attained[name])} predicted"


def _show(
    traffic: RecordedTraffic,
    found: Sequence[Prediction],
    contradicted: Sequence[str],
    errors: Errors,
    price: float | None,
) -> None:
    names = [*traffic.attained]
    headings = ["settings", *names, "GPUs", *([] if price is None else ["cost per hour", "per 1M output tokens"])]
    blank = [""] * (len(headings) - len(names) - 1)
    rows = [["measured, from the log", *(_percent(each) for each in traffic.attained.values()), *blank]]
    for prediction in found:
        rows.append([prediction.combination.name, *(_cell(prediction, found[0], name) for name in names)])
        rows[-1].append(f"{prediction.combination.gpus}")
        if price is not None:
            hour = price * prediction.combination.gpus
            tokens = prediction.output_tokens / prediction.seconds * 3600
            rows[-1] += [f"{hour:.2f}", f"{hour / tokens * 1e6:.2f}" if tokens else "-"]
    title = f"Good requests of {len(traffic.requests)} in {spell_duration(round(traffic.seconds))}, by class"
    print_grid(Grid(title, headings, rows, labels=1), Console())
    print(
        f"In brackets: with all latencies changed by the median error of the simulator, {errors.ttft:.0%} of TTFT and "
        f"{errors.tpot:.0%} of others. ~: not distinguishable from the recorded settings."
    )
    if traffic.assumed:
        print(f"{traffic.assumed} requests did not end: their lengths are estimated from those of their class.")
    if not traffic.has_prefixes:
        print("The log has no prefix hashes, so no prompt shares a prefix; write it with --log-prefix-hashes.")
    if contradicted:
        print("NOT TO BE TRUSTED for this workload: the prediction for the recorded settings is wrong for")
        print("\n".join(f"  {each}" for each in contradicted))


def _cell(prediction: Prediction, unchanged: Prediction, name: str) -> str:
    if name not in prediction.attained:
        return "-"
    low, high = prediction.interval(name)
    before = unchanged.interval(name) if name in unchanged.attained else (low, high)
    same = prediction is not unchanged and low <= before[1] and high >= before[0]
    return f"{_percent(prediction.attained[name])} ({low:.0%} to {high:.0%}){' ~' * same}"


def _percent(attained: Attainment) -> str:
    return f"{attained.share:.0%}"


def _document(
    traffic: RecordedTraffic,
    found: Sequence[Prediction],
    contradicted: Sequence[str],
    errors: Errors,
    price: float | None,
) -> dict[str, object]:
    return {
        "requests": len(traffic.requests),
        "seconds": round(traffic.seconds, 3),
        "assumed_lengths": traffic.assumed,
        "prefix_hashes": traffic.has_prefixes,
        "errors": {"ttft": errors.ttft, "tpot": errors.tpot},
        "contradictions": list(contradicted),
        "recorded": {name: round(each.share, 6) for name, each in traffic.attained.items()},
        "predictions": [
            {
                "settings": dict(each.combination.changes),
                "gpus": each.combination.gpus,
                "cost_per_hour": None if price is None else price * each.combination.gpus,
                "output_tokens": each.output_tokens,
                "output_tokens_per_second": round(each.output_tokens / each.seconds, 3),
                "good": {
                    name: {
                        "share": round(attained.share, 6),
                        "least": round(each.interval(name)[0], 6),
                        "most": round(each.interval(name)[1], 6),
                    }
                    for name, attained in each.attained.items()
                },
            }
            for each in found
        ],
    }
