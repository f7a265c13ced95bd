"""/engine/livez fails for an engine that is wedged or down for a while, /engine/readyz for one that cannot serve."""

import time
from typing import Any

import pytest

from exporters.engines.condition.rule import Condition, Reason, State
from exporters.sidecar.exporter import Exporter
from exporters.sidecar.http_api.http_server import ENGINE_LIVEZ, ENGINE_READYZ
from tests.support.child_configs import exporter_config

UNREADY = {State.STARTING, State.WEDGED, State.PAUSED, State.DOWN}


def probe(path: str, state: State, seconds: float = 10.0, **flags: Any) -> tuple[bool, str]:
    """The probe of an engine that has been in this state for so long."""
    exporter = Exporter(exporter_config(**flags))
    (watch,) = exporter.engines.conditions
    condition = Condition(state, Reason.NO_RESPONSE, since=time.monotonic() - seconds)
    watch.condition = condition
    return exporter.probe_engines(path)


@pytest.mark.parametrize("state", State)
def test_readyz_fails_in_states_that_cannot_serve(state: State) -> None:
    assert probe(ENGINE_READYZ, state)[0] is (state not in UNREADY)


def test_readyz_fails_for_a_saturated_engine_if_the_operator_says_so() -> None:
    assert not probe(ENGINE_READYZ, State.SATURATED, unready_when_saturated=True)[0]


@pytest.mark.parametrize("state", State)
def test_livez_fails_only_after_a_while_in_a_state_that_does_not_end(state: State) -> None:
    assert probe(ENGINE_LIVEZ, state, 59)[0]
    assert probe(ENGINE_LIVEZ, state, 61)[0] is (state not in {State.WEDGED, State.DOWN})
    assert probe(ENGINE_LIVEZ, state, 61, wedged_after=120.0)[0]


def test_the_text_has_the_evidence() -> None:
    text = probe(ENGINE_LIVEZ, State.WEDGED)[1]
    assert text.endswith(" is wedged for 10 s: it accepts connections and does not answer\n")


@pytest.mark.parametrize("warm", [False, True])
def test_readyz_waits_for_a_warm_up_if_the_operator_says_so(*, warm: bool) -> None:
    exporter = Exporter(exporter_config(ready_when_warm=True))
    (watch,) = exporter.engines.conditions
    watch.condition = Condition(State.SERVING, Reason.WORKS, since=time.monotonic())
    if warm:
        assert exporter.engines.report_warm() == [watch.name]
    succeeds, text = exporter.probe_engines(ENGINE_READYZ)
    line = f"{watch.name} is not warm: vllm-slo load warm-up --ready has not reported it\n"
    assert (succeeds, line in text) == (warm, not warm)
    assert exporter.probe_engines(ENGINE_LIVEZ)[0]


def test_without_the_flag_a_cold_engine_is_ready() -> None:
    assert probe(ENGINE_READYZ, State.SERVING)[0]
