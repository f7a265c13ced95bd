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
from compose.whatif.combinations import SETTINGS, Combination, combinations, parse_settings
from compose.whatif.engine_model import add_engine_model, engine_model
from compose.whatif.log_fit import fit_log
from compose.whatif.prediction import VALIDATED, Errors, Prediction, predict
from compose.whatif.recorded_traffic import Attainment, RecordedTraffic, read_traffic
from exporters.text.command_flags import add_format, add_request_logs
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_duration, spell_duration
from exporters.vocabulary.slo_file import add_flag, load

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
    add_engine_model(parser)
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
    (base, calibration), recorded = engine_model(arguments), parse_settings("--recorded", arguments.recorded)
    every = combinations(base, recorded, tried)
    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError(f"--jobs: {arguments.jobs} is not a number of processes; write 1 or more")
    timeout = None if arguments.timeout is None else parse_flag("--timeout", arguments.timeout, parse_duration)
    traffic = read_traffic([Path(path) for path in arguments.request_log])
    timeout = timeout or traffic.longest
    if arguments.calibrate:
        speed, calibration = fit_log(every[0], traffic, timeout)
        base = replace(base, speed=speed)
        every = combinations(base, recorded, tried)
    if calibration is not None:
        for name, low, high in calibration.exceeded_by(traffic.ranges()):
            print(f"{name} of the log, {low} to {high}, are outside the range of the calibration", file=sys.stderr)
    errors = VALIDATED if calibration is None else VALIDATED.replaced_by(calibration)
    found = _predict_all(
        every, partial(predict, traffic=traffic, slos=slos, timeout=timeout, errors=errors), arguments.jobs
    )
    contradicted = [*_contradictions(traffic.attained, found[0])]
    if arguments.format == "json":
        print(json.dumps(_document(traffic, found, contradicted, errors, arguments.gpu_hour_price), indent=2))
    else:
        _show(traffic, found, contradicted, errors, arguments.gpu_hour_price)
    return 1 if contradicted else 0


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
