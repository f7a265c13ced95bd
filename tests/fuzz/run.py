"""Runs mutated input through the relay until time is over: `make fuzz` (MINUTES=10). A fault found is exit code 1."""

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

from tests.fuzz import client_requests, engine_answers, event_streams
from tests.support.waiting import HANG


@dataclass(frozen=True, slots=True)
class Target:
    """Makes cases, and checks them: True for one that went deep; whatever is raised is a fault found."""

    name: str
    case: Callable[[random.Random], Any]
    check: Callable[[Any], Awaitable[bool]]


TARGETS = {
    target.name: target
    for target in (
        Target("requests", client_requests.case, client_requests.check),
        Target("answers", engine_answers.case, engine_answers.check),
        Target("fast_path", engine_answers.fast_path_case, engine_answers.check),
        Target("streams", event_streams.case, event_streams.check),
    )
}


def make_case(target: Target, seed: int, number: int) -> Any:
    return target.case(random.Random(f"{seed}:{target.name}:{number}"))  # noqa: S311 - reproducible


class Faults:
    """What callbacks of the loop raise, which nobody awaits."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    def handler(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors.append(context.get("exception") or RuntimeError(context["message"]))

    def raise_any(self) -> None:
        if self._errors:
            raise self._errors.pop()


class FaultFoundError(Exception):
    """What a case did, and the command that runs it again."""


async def check_case(target: Target, seed: int, number: int) -> bool:
    """Whether the case went deep.

    Raises:
        FaultFoundError: it found a fault.
    """
    case = make_case(target, seed, number)
    faults = Faults()
    asyncio.get_running_loop().set_exception_handler(faults.handler)
    try:
        async with asyncio.timeout(HANG):
            deep = await target.check(case)
        faults.raise_any()
    except Exception as error:
        again = f"python -m tests.fuzz.run {target.name} --seed {seed} --case {number}"
        raise FaultFoundError(f"{traceback.format_exc()}\n{case!r}\nagain: {again}") from error
    return deep


async def run(targets: list[Target], seed: int, seconds: float) -> dict[str, tuple[int, int]]:
    """All targets in turn, case by case; how many there were of each, and how many of them went deep.

    Raises:
        FaultFoundError: one found a fault.
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
    parser.add_argument("--case", type=int, help="only this one")
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
        print(f"{name}: no fault in {number} executions, {deep} of them deep")
    print(f"{time.monotonic() - began:.0f} s, seed {arguments.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
