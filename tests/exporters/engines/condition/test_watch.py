"""The watch builds the evidence, logs and exposes each change of state; a report of warmth holds for one process."""

import logging
from dataclasses import replace

import pytest

from exporters.engines.condition.evidence import Contact, Requests, Scrape
from exporters.engines.condition.rule import Limits, Reason, State
from exporters.engines.condition.watch import ConditionWatch, Warmth, requests_of
from exporters.engines.normalisation import normalise
from exporters.engines.state import EngineState
from exporters.records.messages import Waits
from exporters.vocabulary import signals

LIMITS = Limits(stall=20)
PAGE = """
vllm:num_requests_running{engine="0",model_name="m"} %d
vllm:num_requests_waiting{engine="0",model_name="m"} 3
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 2
vllm:generation_tokens_total{engine="0",model_name="m"} %d
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} %d
process_start_time_seconds 1000
"""


def scraped(at: float, *, running: int = 1, tokens: int = 0, awake: bool = True) -> EngineState:
    page = normalise(PAGE % (running, tokens, awake))
    return EngineState("gpu:8000", up=True, metrics=page, last_success_at=at)


def failed(reason: str) -> EngineState:
    return EngineState("gpu:8000", up=False, failure=reason)


def watch_after(*engines: EngineState, waits: tuple[Waits, ...] = ()) -> ConditionWatch:
    """The watch after one second with each of these."""
    watch = ConditionWatch("gpu:8000", LIMITS)
    for second, engine in enumerate(engines, 1):
        watch.observe(engine, requests_of(waits), float(second))
    return watch


@pytest.mark.parametrize(
    "engines, state",
    [
        pytest.param([EngineState("gpu:8000")], State.STARTING, id="not scraped yet"),
        pytest.param([failed("connection")], State.STARTING, id="refused"),
        pytest.param([scraped(1), scraped(2, tokens=1)], State.SERVING, id="works"),
        pytest.param([scraped(1), scraped(2, awake=False)], State.PAUSED, id="asleep"),
        pytest.param([scraped(1), failed("unauthorized")], State.SERVING, id="unreadable"),
        pytest.param([scraped(1), *[failed("timeout")] * 22], State.WEDGED, id="silent"),
        pytest.param(
            [scraped(1), failed("connection"), scraped(3), failed("connection"), scraped(5), failed("connection")],
            State.DOWN,
            id="exits",
        ),
        pytest.param([scraped(1), replace(scraped(2), generation_paused=True)], State.PAUSED, id="paused"),
        pytest.param([scraped(at, tokens=min(at, 2)) for at in range(1, 25)], State.WEDGED, id="tokens no longer move"),
        pytest.param([scraped(at, tokens=at, running=at) for at in range(1, 25)], State.SATURATED, id="one waits"),
    ],
)
def test_scrapes_lead_to_states(engines: list[EngineState], state: State) -> None:
    assert watch_after(*engines).condition.state is state


def test_only_the_port_of_the_metrics_refuses() -> None:
    served = Waits(output_at=1.5)
    assert watch_after(failed("connection"), failed("connection"), waits=(served,)).condition.state is State.SERVING


def test_each_change_is_logged_with_its_evidence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vllm_slo.engines"):
        watch_after(*[scraped(at, tokens=min(at, 2)) for at in range(1, 25)], waits=(Waits(awaited=2),))
    assert [f"{each.levelname} {each.message}" for each in caplog.records] == [
        "INFO engine gpu:8000 is saturated: requests wait for capacity",
        (
            "WARNING engine gpu:8000 is wedged: requests wait for it, and nothing moves for 21 s (2 at the relay, "
            "1 running and 3 waiting in it)"
        ),
    ]


def ranks(at: float, *tokens: int) -> EngineState:
    """A scrape of ranks that each run a request and have generated these tokens."""
    page = "".join(
        f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} 1\n'
        f'vllm:generation_tokens_total{{engine="{rank}",model_name="m"}} {count}\n'
        for rank, count in enumerate(tokens)
    )
    return EngineState("gpu:8000", up=True, metrics=normalise(page), last_success_at=at)


def test_a_rank_that_stands_still_makes_the_engine_wedged_until_it_moves_again() -> None:
    stalls = [ranks(at, at, min(at, 3), at) for at in range(1, 25)]
    wedged = watch_after(*stalls)
    assert (wedged.condition.state, wedged.condition.reason) == (State.WEDGED, Reason.RANK_STALLED)
    assert wedged.line(24.0).endswith("requests wait for one of its ranks, and nothing moves there (rank 1)\n")
    assert wedged.failing_for(24.0) == pytest.approx(0.0)  # 3 + 20 s after its last token
    assert watch_after(*stalls, ranks(25, 25, 4, 25)).condition.state is State.SERVING


def test_exactly_one_state_and_one_reason_are_exposed() -> None:
    samples = list(watch_after(*[scraped(at, tokens=at) for at in (1, 2, 3)]).samples(3.0))
    states = {labels[0]: value for signal, labels, value in samples if signal is signals.ENGINE_STATE}
    assert states == {**dict.fromkeys(map(str, State), 0.0), "serving": 1.0}
    reasons = [labels for signal, labels, _ in samples if signal is signals.ENGINE_STATE_REASON]
    assert reasons == [("works",)]
    times = {signal.name: value for signal, _, value in samples if "timestamp" in signal.name}
    changed, worked = (times[each.name] for each in (signals.ENGINE_STATE_CHANGED, signals.ENGINE_WORKED))
    assert worked - changed == pytest.approx(2.0)


def test_the_relays_of_a_sidecar_are_one_piece_of_evidence() -> None:
    rows = [
        Waits(2, ("a",), 10.0, 5.0, ("a",), 1),
        Waits(1, ("b",), 90.0, 7.0, ("a", "c"), 2),
        Waits(),
    ]
    found = requests_of(rows)
    assert found == Requests(
        awaited=3,
        models=frozenset({"a", "b"}),
        longest_prompt=90.0,
        output_at=7.0,
        output_models=frozenset({"a", "c"}),
        failed=3,
    )


FRESH, USED, NEXT = Scrape(1.0, 1000.0, (0.0,)), Scrape(1.0, 1000.0, (7.0,)), Scrape(9.0, 2000.0, (7.0,))
NAMELESS = Scrape(1.0, None, (7.0,))
"""An engine that does not expose when it started."""


def warmth_after(*seen: Scrape | None, warmth: Warmth | None = None) -> Warmth:
    """None: the connection is refused."""
    warmth = warmth or Warmth()
    for scrape in seen:
        warmth.observe(Contact.REFUSED if scrape is None else Contact.ANSWERS, scrape)
    return warmth


@pytest.mark.parametrize(
    "before, after, warm",
    [
        pytest.param([FRESH], [], True, id="reported"),
        pytest.param([], [FRESH], True, id="reported before the first scrape"),
        pytest.param([FRESH], [FRESH, USED], True, id="the same process"),
        pytest.param([FRESH], [NEXT], False, id="another process"),
        pytest.param([FRESH], [None, FRESH], True, id="a connection that failed"),
        pytest.param([NAMELESS], [None, NAMELESS], False, id="a process without a start time that stopped listening"),
        pytest.param([NAMELESS], [NAMELESS], True, id="a process without a start time"),
    ],
)
def test_a_report_holds_until_the_process_ends(
    before: list[Scrape | None], after: list[Scrape | None], *, warm: bool
) -> None:
    warmth = warmth_after(*before)
    warmth.report()
    assert warmth_after(*after, warmth=warmth).warm is warm


@pytest.mark.parametrize(
    "seen, warm",
    [
        pytest.param([], False, id="nothing"),
        pytest.param([FRESH, USED], False, id="requests after the start of the sidecar"),
        pytest.param([USED], True, id="requests before it"),
        pytest.param([USED, NEXT], False, id="another process"),
        pytest.param([None, USED], False, id="a start after that of the sidecar"),
    ],
)
def test_without_a_report_only_an_engine_that_had_worked_before_is_warm(
    seen: list[Scrape | None], *, warm: bool
) -> None:
    assert warmth_after(*seen).warm is warm
