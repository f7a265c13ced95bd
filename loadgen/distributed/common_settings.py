"""The settings that master and workers of a distributed run must have in common; each process reads its own."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import metadata
from itertools import islice

import gevent

from loadgen.run.settings import RunSettings
from loadgen.schedule.phases import ClosedLoop
from loadgen.schedule.requests import PlannedRequest, schedule_hash

_REQUESTS_OF_USERS = 100
_BETWEEN_PAUSES = 100
_HASHED = ("schedule", "scenario", "SLO file")


def common_settings(settings: RunSettings) -> Mapping[str, str]:
    """Each setting by its name; long ones are hashes. The target and the model come from the master."""
    plan, slos = settings.plan, settings.slos
    users = [
        schedule_hash(islice(plan.schedule.users(phase), _REQUESTS_OF_USERS))
        for phase in settings.phases
        if isinstance(phase, ClosedLoop)
    ]
    return {
        "version": metadata.version("vllm-slo"),
        "schedule": schedule_hash(_with_pauses(plan.schedule)),
        "scenario": _hash((plan.name, plan.timeout, dict(plan.timeouts), dict(plan.shares), settings.phases, users)),
        "SLO file": _hash((slos.classes, slos.slos, slos.first_token_timeout)),
        "--grace": f"{settings.grace:g} s",
        "--max-open": str(settings.max_open),
        "--max-concurrency": str(settings.max_concurrency or "none"),
        "--save-detailed": str(settings.save_detailed).lower(),
    }


def differences(worker: Mapping[str, str], master: Mapping[str, str]) -> str:
    """The settings of a worker that differ from the master's; empty if none does."""
    return ", ".join(
        name if name in _HASHED else f"{name} ({worker.get(name, 'unknown')}, the master's is {value})"
        for name, value in master.items()
        if worker.get(name) != value
    )


def _with_pauses(requests: Iterable[PlannedRequest]) -> Iterator[PlannedRequest]:
    """Let other greenlets run: Locust stops the test if no worker answers for three seconds."""
    for number, request in enumerate(requests):
        if number % _BETWEEN_PAUSES == 0:
            gevent.sleep(0)
        yield request


def _hash(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()
