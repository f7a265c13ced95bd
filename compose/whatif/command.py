"""`vllm-slo whatif`: what recorded traffic would get from other settings of the engine."""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from compose.experiments.report.tables import print_grid
from compose.whatif.combinations import SETTINGS, Combination, combinations, parse_settings
from compose.whatif.engine_model import add_engine_model, engine_model
from compose.whatif.log_fit import fit_log
from compose.whatif.prediction import Prediction, predict, validated_errors
from compose.whatif.recorded_traffic import read_traffic
from compose.whatif.report import UNTRUSTED, Answer, document, grid, notes, page
from exporters.text.command_flags import add_format, add_request_logs
from exporters.text.errors import UsageError, parse_flag
from exporters.text.output_files import write_file
from exporters.text.units import parse_duration
from exporters.vocabulary.slo_file import add_flag, load


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
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write the table to this file, with plots of cost and attainment"
    )
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
    errors = validated_errors(every[0].preset)
    if calibration is not None:
        errors = errors.replaced_by(calibration)
    found = _predict_all(
        every, partial(predict, traffic=traffic, slos=slos, timeout=timeout, errors=errors), arguments.jobs
    )
    answer = Answer(traffic, found, errors, arguments.gpu_hour_price, slos)
    if arguments.html is not None:
        write_file(arguments.html, page(answer))
    if arguments.format == "json":
        print(json.dumps(document(answer), indent=2))
    else:
        print_grid(grid(answer), Console())
        print("\n".join(notes(answer)))
        if answer.contradicted:
            print("\n  ".join([UNTRUSTED, *answer.contradicted]))
    return 1 if answer.contradicted else 0


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
