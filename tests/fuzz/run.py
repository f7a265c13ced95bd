"""Runs mutated input through the relay for a given time: `make fuzz` (MINUTES=10). Exits with 1 if it finds a bug."""

import argparse
import asyncio
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz import client_requests, early_answers, engine_answers, event_streams
from tests.support.waiting import HANG


@dataclass(frozen=True, slots=True)
class Target:
    """Generates and checks cases. `check` returns True if the input passed the parsers; any exception is a bug."""

    name: str
    case: Callable[[random.Random], Any]
    check: Callable[[Any], Awaitable[bool]]


TARGETS = {
    target.name: target
    for target in (
        Target("requests", client_requests.case, client_requests.check),
        Target("answers", engine_answers.case, engine_answers.check),
        Target("fast_path", engine_answers.fast_path_case, engine_answers.check),
        Target("named_fast_path", engine_answers.named_fast_path_case, engine_answers.check),
        Target("early_answers", early_answers.case, early_answers.check),
        Target("streams", event_streams.case, event_streams.check),
        Target("named_streams", event_streams.named_case, event_streams.check),
    )
}


def make_case(target: Target, seed: int, number: int) -> Any:
    return target.case(random.Random(f"{seed}:{target.name}:{number}"))  # noqa: S311 - reproducible


class FaultFoundError(Exception):
    """The failure of a case, with the command that reproduces it."""


async def check_case(target: Target, seed: int, number: int) -> bool:
    """Whether the input passed the parsers.

    Raises:
        FaultFoundError: the case found a bug.
    """
    case = make_case(target, seed, number)
    # Errors in callbacks of the event loop.
    errors: list[BaseException] = []

    def on_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        errors.append(context.get("exception") or RuntimeError(context["message"]))

    asyncio.get_running_loop().set_exception_handler(on_error)
    try:
        async with asyncio.timeout(HANG):
            deep = await target.check(case)
    except Exception as error:  # noqa: BLE001 - any exception is a bug
        errors.append(error)
    if errors:
        trace = "".join(traceback.format_exception(errors[-1]))
        again = f"python -m tests.fuzz.run {target.name} --seed {seed} --case {number}"
        raise FaultFoundError(f"{trace}\n{case!r}\nagain: {again}") from errors[-1]
    return deep


async def run(targets: list[Target], seed: int, seconds: float) -> dict[str, tuple[int, int]]:
    """Run all targets in turn; return the number of cases and of those that passed the parsers, by target.

    Raises:
        FaultFoundError: a case found a bug.
    """
    began = printed_at = time.monotonic()
    number = 0
    deep = Counter[str]()
    while (now := time.monotonic()) < began + seconds:
        number += 1
        for target in targets:
            deep[target.name] += await check_case(target, seed, number)
        if now > printed_at + 10:
            printed_at = now
            print(f"{now - began:.0f} s, {number * len(targets)} executions", flush=True)
    return {target.name: (number, deep[target.name]) for target in targets}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="default: all")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run only this case")
    arguments = parser.parse_args()
    targets = [TARGETS[name] for name in arguments.targets] or list(TARGETS.values())
    print(f"fuzzing {', '.join(target.name for target in targets)} with seed {arguments.seed}", flush=True)
    began = time.monotonic()
    try:
        if arguments.case is None:
            done = asyncio.run(run(targets, arguments.seed, arguments.minutes * 60))
        else:
            done = {
                target.name: (1, asyncio.run(check_case(target, arguments.seed, arguments.case))) for target in targets
            }
    except FaultFoundError as error:
        print(error)
        return 1
    for name, (number, deep) in done.items():
        print(f"{name}: no bug in {number} executions, {deep} passed the parsers")
    print(f"{time.monotonic() - began:.0f} s, seed {arguments.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
