"""The state of an engine: each transition of docs/engine-state.md, and whole episodes of 29 kinds."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from exporters.engines.condition.evidence import Contact, Evidence, Requests, Scrape
from exporters.engines.condition.rule import Condition, Limits, State, observe
from tests.exporters.engines.condition.episodes import KINDS, Kind, run

LIMITS = Limits(start=100, first_requests=50, stall=20, new_model=40, deferred=60, queue=10, failures=3)
IDLE = Scrape(0.0, started_at=1.0)
FAILED = Requests(failed=3)
WAITING = Requests(awaited=1, models=frozenset({"m"}), output_models=frozenset({"m"}), output_at=1.0)


def seconds(
    count: int, contact: Contact = Contact.ANSWERS, **changes: object
) -> list[tuple[Contact, dict[str, object]]]:
    """As many seconds of the same evidence; `work` grows by this number each second."""
    return [(contact, changes)] * count


def after(*parts: Iterable[tuple[Contact, dict[str, object]]]) -> Condition:
    """The condition after these seconds."""
    condition, scrape, work, at = Condition(), IDLE, 0.0, 0.0
    for contact, changes in (second for part in parts for second in part):
        at += 1
        work += float(str(changes.get("work", 0)))
        if contact is Contact.ANSWERS:
            values = {key: value for key, value in changes.items() if key not in {"work", "requests"}}
            scrape = replace(IDLE, at=at, work=(work,), **values)  # type: ignore[arg-type]
        requests = changes.get("requests", Requests())
        assert isinstance(requests, Requests)
        condition = observe(condition, Evidence(at, contact, scrape if scrape.at else None, requests), LIMITS)
    return condition


UP = seconds(5, work=1, running=1)
REFUSED, SILENT = Contact.REFUSED, Contact.SILENT


@pytest.mark.parametrize(
    "parts, expected",
    [
        pytest.param([seconds(99, REFUSED)], "starting: not_listening", id="never answered"),
        pytest.param([seconds(102, REFUSED)], "down: start_too_long", id="never answered for too long"),
        pytest.param([seconds(9, SILENT)], "starting: not_listening", id="never answered, port open"),
        pytest.param([seconds(2)], "serving: idle", id="answers, and nobody waits"),
        pytest.param([seconds(20, running=1)], "serving: works", id="first requests"),
        pytest.param([seconds(49, running=1)], "starting: first_requests", id="slow first requests"),
        pytest.param([seconds(53, running=1)], "wedged: no_progress", id="first requests for too long"),
        pytest.param([UP], "serving: works", id="works"),
        pytest.param([UP, seconds(20, running=1)], "serving: works", id="nothing moves for a moment"),
        pytest.param([UP, seconds(21, running=1)], "wedged: no_progress", id="nothing moves"),
        pytest.param([UP, seconds(21, waiting=1)], "wedged: no_progress", id="nobody is admitted"),
        pytest.param([UP, seconds(60)], "serving: idle", id="nothing moves, and nobody waits"),
        pytest.param([UP, seconds(21, requests=WAITING)], "wedged: no_progress", id="waits at the relay only"),
        pytest.param(
            [UP, seconds(39, requests=replace(WAITING, models=frozenset({"adapter"})))],
            "serving: works",
            id="a model without output may be an adapter",
        ),
        pytest.param([UP, seconds(59, deferred=1)], "serving: works", id="deferred requests may take longer"),
        pytest.param([UP, seconds(62, deferred=1)], "wedged: no_progress", id="but not for ever"),
        pytest.param([UP, seconds(60, running=1, counts_live=False)], "serving: idle", id="counts only at the end"),
        pytest.param(
            [UP, seconds(39, running=1, requests=replace(WAITING, longest_prompt=100_000))],
            "serving: works",
            id="a long prompt",
        ),
        pytest.param([UP, seconds(20, SILENT)], "serving: metrics_unreadable", id="silent for a moment"),
        pytest.param([UP, seconds(21, SILENT)], "wedged: no_response", id="silent"),
        pytest.param([UP, seconds(60, Contact.UNREADABLE)], "serving: metrics_unreadable", id="status 401"),
        pytest.param([UP, seconds(11, work=1, waiting=1)], "saturated: queue", id="a queue"),
        pytest.param([UP, seconds(10, work=1, waiting=1)], "serving: works", id="a short queue"),
        pytest.param(
            [UP, seconds(11, work=1, waiting=1), seconds(10, work=1, running=1)],
            "saturated: queue",
            id="a queue that has just ended",
        ),
        pytest.param(
            [UP, seconds(11, work=1, waiting=1), seconds(11, work=1, running=1)],
            "serving: works",
            id="a queue that has ended",
        ),
        pytest.param([UP, seconds(1, paused=True)], "paused: paused", id="asleep"),
        pytest.param([UP, seconds(60, paused=True, waiting=1)], "paused: paused", id="waits while asleep"),
        pytest.param([UP, seconds(1, REFUSED)], "starting: exited", id="exited"),
        pytest.param([UP, seconds(102, REFUSED)], "down: start_too_long", id="exited for good"),
        pytest.param([UP, seconds(1, REFUSED), UP, seconds(1, REFUSED)], "starting: exited", id="restarts"),
        pytest.param(
            [UP, seconds(1, REFUSED), UP, seconds(1, REFUSED, requests=FAILED)],
            "down: exited_again",
            id="exited again, and requests failed",
        ),
        pytest.param(
            [UP, seconds(1, REFUSED), UP, seconds(1, REFUSED), UP, seconds(1, REFUSED)],
            "down: exited_again",
            id="exited for the third time",
        ),
        pytest.param(
            [UP, seconds(1, REFUSED), *[UP] * 90, seconds(1, REFUSED, requests=FAILED)],
            "starting: exited",
            id="exited again after a long time",
        ),
        pytest.param(
            [UP, seconds(21, requests=Requests(probing=True, models=frozenset({"m"}), output_models=frozenset({"m"})))],
            "wedged: no_progress",
            id="only a probe waits",
        ),
        pytest.param([UP, seconds(22, requests=FAILED)], "down: fails", id="fails all requests"),
        pytest.param([UP, seconds(21, requests=FAILED)], "serving: idle", id="fails for a moment"),
        pytest.param([UP, seconds(60, requests=Requests(failed=2))], "serving: idle", id="two fail"),
        pytest.param(
            [UP, seconds(22, requests=FAILED), seconds(1, work=1, requests=FAILED)],
            "serving: idle",
            id="works again after failures",
        ),
        pytest.param([UP, seconds(30, running=1), seconds(1, work=1, running=1)], "serving: works", id="moves again"),
        pytest.param([UP, seconds(30, running=1), seconds(1)], "serving: idle", id="has noticed the aborts"),
        pytest.param([UP, seconds(30, requests=WAITING), seconds(30)], "wedged: no_progress", id="clients gave up"),
        pytest.param([UP, seconds(30, SILENT), seconds(1)], "serving: idle", id="answers again"),
        pytest.param([UP, seconds(30, running=1), seconds(1, REFUSED)], "starting: exited", id="was restarted"),
        pytest.param([UP, seconds(30, running=1), seconds(1, started_at=9.0)], "serving: idle", id="another process"),
    ],
)
def test_a_transition(parts: list[list[tuple[Contact, dict[str, object]]]], expected: str) -> None:
    condition = after(*parts)
    assert f"{condition.state}: {condition.reason}" == expected


def test_the_time_of_a_state_is_that_of_its_begin() -> None:
    assert after(UP, seconds(40, running=1)).since == 5 + 21


LASTING = {
    "load_of_twenty_minutes": State.STARTING,
    "restart": State.STARTING,
    "queue_of_minutes": State.SATURATED,
    "asleep": State.PAUSED,
    "fails_all_requests": State.DOWN,
    "exits_again_and_again": State.DOWN,
}
"""States that last for more than a twentieth of an episode."""

BUSY = {"queue_of_minutes", "hang_that_ends"}
EPISODES = [
    pytest.param(kind, id=kind.__name__, marks=[pytest.mark.slow] if kind.__name__ in BUSY else []) for kind in KINDS
]


@pytest.mark.parametrize("kind", EPISODES)
def test_an_episode(kind: Kind) -> None:
    result = run(kind, 1)
    assert result.is_right
    if state := LASTING.get(kind.__name__):
        assert result.states[state] > 0.05 * result.states.total()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fifteen_episodes_of_each_kind(kind: Kind) -> None:
    assert [seed for seed in range(15) if not run(kind, seed).is_right] == []
