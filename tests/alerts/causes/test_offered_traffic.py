"""Traffic that falls to nothing raises a ticket; a quiet night, a restart and a model with little traffic do not."""

import math

from alerts.causes.offered_traffic import NEARLY_NONE
from exporters.vocabulary.slo_file import load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool, constant, counter
from tests.support.runbook_queries import FOLDER, blocks, queries

ALERT = "LLMOfferedTrafficLost"
PACE = Pace(load(ROOT / "alerts/slos.yaml")).coarse
"""Five scrapes a step of 5 m: 15 requests a scrape are 225 in the window of 15 m."""
HOUR, DAY, WEEK = 12, 288, 2016
"""Steps."""


def served(
    model: str,
    *phases: tuple[float, float],
    instance: str = "",
    since: float = 0,
    up: str = "",
    engine_up: str = "",
    open_requests: float = 0,
) -> dict[str, str]:
    """A model behind a sidecar that is a target from the step `since` on; a phase is steps and requests per scrape."""
    n = PACE.scrapes(sum(steps for steps, _ in phases))
    target = f'instance="{instance or model}",job="vllm-slo-sidecar"'
    requests = f'{target},model="{model}",class="siso",tenant="other",stream="true",outcome="ok"'
    series = {
        f"up{{{target}}}": up or constant(1, n),
        f'llm_engine_up{{{target},engine="e"}}': engine_up or constant(1, n),
        f'llm_engine_requests_running{{{target},engine="e",model="{model}",rank="0"}}': constant(0, n),
        f'llm_requests_in_flight{{{target},model="{model}",class="siso",phase="streaming"}}': constant(
            open_requests, n
        ),
        f"llm_requests_total{{{requests}}}": counter(*((each, PACE.scrapes(steps)) for steps, each in phases)),
    }
    before = f"_x{PACE.scrapes(since)} " if since else ""
    return {name: f"{before}{values} stale" for name, values in series.items()}


def case(series: dict[str, str]) -> Case:
    return Case(PACE.spec, series, PACE.step, sidecar_is_up=False)


def fires(*models: str) -> dict[str, float]:
    return {f'{{model="{model}",severity="ticket"}}': 1.0 for model in models}


TICKETS = firing(ALERT, "model, severity")


def test_traffic_that_stops_raises_a_ticket_unless_last_week_was_quiet_too(promtool: Promtool) -> None:
    stops = WEEK + 2 * HOUR
    series = {
        **served("stops", (stops, 15), (2 * HOUR, 0), (HOUR, 15)),
        **served("falls to a half", (stops, 15), (3 * HOUR, 7)),
        **served("little traffic", (stops, 3), (3 * HOUR, 0)),
        **served("quiet last week", (HOUR, 15), (4 * HOUR, 0), (WEEK - 3 * HOUR, 15), (3 * HOUR, 0)),
        # Last week, work ended 20 minutes later.
        **served("ends earlier", (2 * HOUR + 4, 15), (DAY, 0), (WEEK - DAY - 4, 15), (3 * HOUR, 0)),
        **served("open requests", (stops, 15), (3 * HOUR, 0), open_requests=40),
        **served("new", (3 * HOUR, 15), (3 * HOUR, 0), since=stops - 3 * HOUR),
    }
    at = PACE.seconds
    lost = case(series).expect(at(stops), TICKETS, {})
    lost.expect(at(stops + 5), TICKETS, fires("stops", "new"))
    # A model that is newer than a week is compared with the hour before, which is over then.
    lost.expect(at(stops + 2 * HOUR - 1), TICKETS, fires("stops"))
    promtool.test([lost.expect(at(stops + 2 * HOUR + 1), TICKETS, {})])


def test_no_ticket_while_no_engine_of_the_model_is_up(promtool: Promtool) -> None:
    """A sidecar or an engine that is down, and a pod that is replaced: their alerts explain the loss."""
    steps, after = 3 * HOUR, 2 * HOUR
    n, rest = PACE.scrapes(steps), PACE.scrapes(after)
    down, busy = f"{constant(1, n)} {constant(0, rest)}", (steps, 15.0)
    starts = f"{constant(0, PACE.scrapes(2))} {constant(1, rest)}"
    series = {
        **served("gateway", busy, (after, 0)),
        **served("sidecar down", busy, (after, 0), up=down),
        **served("engine down", busy, (after, 0), engine_up=down),
        **served("replaced", busy, instance="old pod"),
        **served("replaced", (3, 0), (after, 15), instance="new pod", since=steps, engine_up=starts),
    }
    lost = case(series)
    for step in range(steps, steps + HOUR):
        lost.expect(PACE.seconds(step), firing(ALERT, "model", model="replaced"), {})
    at = PACE.seconds(steps + 6)
    promtool.test([lost.expect(at, TICKETS, fires("gateway"))])


def test_the_runbook_lists_the_sidecars_without_requests_first(promtool: Promtool) -> None:
    steps = 3 * HOUR
    lost = case(served("gateway", (steps, 15), (HOUR, 0)) | served("busy", (steps + HOUR, 15)))
    at = PACE.seconds(steps + 6)
    (block,) = blocks(FOLDER / f"{ALERT}.md")
    first = block.replace("sort(", "bottomk(1, ")
    lost.expect(at, f"group by (model) ({first})", {'{model="gateway"}': 1}).expect(at, TICKETS, fires("gateway"))
    for query in queries(FOLDER / f"{ALERT}.md"):
        lost.expect(at, f"group ({query}) or vector(1)", {"{}": 1})
    promtool.test([lost])


def test_a_renamed_model_has_lost_no_traffic(promtool: Promtool) -> None:
    """Its requests have another name since then; no engine serves the old one."""
    steps, after = 3 * HOUR, 2 * HOUR
    n, rest = PACE.scrapes(steps), PACE.scrapes(after)
    series = served("old", (steps, 15), (after, 0))
    running = next(name for name in series if "requests_running" in name)
    series[running] = f"{constant(0, n)} stale"
    series[running.replace('model="old"', 'model="new"')] = f"_x{n} {constant(0, rest)}"
    renamed = case(series)
    for step in range(steps, steps + after):
        renamed.expect_silent(PACE.seconds(step), ALERT)
    promtool.test([renamed])


def test_chance_alone_does_not_empty_a_window() -> None:
    """The probability of so few requests where `min_events` are usual, by Poisson; a year has 525,600 evaluations."""
    usual = PACE.spec.alerting.min_events.page
    few = range(math.ceil(NEARLY_NONE * usual))
    assert sum(math.exp(-usual) * usual**count / math.factorial(count) for count in few) * 525_600 < 1e-12
