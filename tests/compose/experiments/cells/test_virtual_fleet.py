"""Several engines in virtual time: routers spread requests, and pools keep classes apart."""

from collections import Counter
from pathlib import Path

import pytest

from compose.experiments.cells.virtual_engine import VirtualEngine
from compose.experiments.cells.virtual_fleet import VirtualFleet
from compose.experiments.cells.virtual_run import VirtualLoad, VirtualRun
from compose.experiments.setup import experiment_file
from compose.experiments.setup.pools import ONE_ENGINE, Pool, Pools, Routing
from compose.simulator.engine.flags import preset_flags
from compose.simulator.presets.preset import PRESETS
from exporters.text.yaml_reader import parse_yaml
from exporters.vocabulary import slo_file
from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule import scenario
from loadgen.schedule.requests import PlannedRequest, Workload
from tests.compose.experiments.toy_experiment import HEAD, mistakes, write_experiment

TOY = PRESETS["toy"]
LOAD = """\
name: small
timeout: 30s
classes:
  chat:
    share: 1
    prompt_tokens: {min: 10, max: 100}
    output_tokens: {min: 10, max: 60}
    conversation: {turns: {min: 3, max: 3}, think_time: {min: 1s, max: 2s}}
  batch: {share: SHARE, prompt_tokens: {min: 300, max: 500}, output_tokens: {min: 10, max: 60}}
phases: [{name: one, duration: 12s, rate: RATE}]
"""


class WatchedFleet(VirtualFleet):
    """Remembers which engine each request was sent to."""

    def __init__(self, pools: Pools) -> None:
        super().__init__(preset_flags(TOY), TOY, pools)
        self.routed: list[tuple[PlannedRequest, VirtualEngine]] = []

    def route(self, request: PlannedRequest) -> VirtualEngine:
        engine = super().route(request)
        self.routed.append((request, engine))
        return engine


def run(pools: Pools, *, share: float = 1, rate: float = 40) -> tuple[WatchedFleet, list[Record]]:
    load = scenario.parse(parse_yaml(LOAD.replace("SHARE", str(share)).replace("RATE", str(rate)), "load"))
    records: list[Record] = []
    virtual = VirtualLoad(
        schedule=Workload(load, load.phases, load.seed),
        phases=load.phases,
        slos=slo_file.load(slo_file.SHIPPED),
        timeout=load.timeout,
        timeouts=load.timeouts,
        max_concurrency=None,
    )
    fleet = WatchedFleet(pools)
    VirtualRun(fleet, virtual, lambda record, _: records.append(record), lambda *_: None).run()
    return fleet, records


def hits(records: list[Record]) -> int:
    return sum(record.cached_tokens or 0 for record in records)


@pytest.mark.slow
@pytest.mark.parametrize("routing", Routing)
def test_every_request_ends_and_no_engine_is_left_busy(routing: Routing) -> None:
    fleet, records = run((Pool(3, routing),))
    assert {record.outcome for record in records} == {ClientOutcome.OK}
    assert len(fleet.routed) == len(records)
    assert {(engine.open, engine.busy, len(engine.scheduler.running)) for engine in fleet.engines} == {(0, False, 0)}
    assert {engine for _, engine in fleet.routed} == set(fleet.engines)


@pytest.mark.slow
def test_round_robin_takes_the_engines_in_turn() -> None:
    fleet, _ = run((Pool(3, Routing.ROUND_ROBIN),))
    engines = [engine for _, engine in fleet.routed]
    assert engines == [fleet.engines[number % 3] for number in range(len(engines))]


@pytest.mark.slow
def test_the_turns_of_a_session_stay_on_one_engine() -> None:
    fleet, records = run((Pool(3, Routing.SESSION),))
    engines = Counter(number for number, _ in {(request.number, engine) for request, engine in fleet.routed})
    assert max(record.turn for record in records) == 2
    assert set(engines.values()) == {1}


@pytest.mark.slow
def test_a_history_is_found_where_the_router_knows_of_it() -> None:
    found = {routing: hits(run((Pool(3, routing),))[1]) for routing in Routing}
    assert found[Routing.SESSION] > found[Routing.ROUND_ROBIN]
    assert found[Routing.PREFIX] > found[Routing.ROUND_ROBIN]


@pytest.mark.slow
def test_a_class_with_a_pool_of_its_own_is_served_as_if_it_were_alone() -> None:
    pools = (Pool(classes=("chat",)), Pool(classes=("batch",)))
    _, both = run(pools, share=3, rate=40)
    _, alone = run(ONE_ENGINE, share=0, rate=10)
    plain = [
        [(record.due, record.turn, record.ttft, record.e2e) for record in records if record.request_class == "chat"]
        for records in (both, alone)
    ]
    assert plain[0] == plain[1] != []


@pytest.mark.parametrize(
    "keys, pools, text",
    [
        pytest.param("", ONE_ENGINE, "1", id="one engine"),
        pytest.param("replicas: 2", (Pool(2),), "2 by round_robin", id="replicas"),
        pytest.param("replicas: 4, routing: prefix", (Pool(4, Routing.PREFIX),), "4 by prefix", id="routing"),
        pytest.param(
            "pools: {one: {classes: [short], replicas: 2, routing: session}, other: {classes: [long]}}",
            (Pool(2, Routing.SESSION, ("short",)), Pool(classes=("long",))),
            "2 by session for short; 1 for long",
            id="pools",
        ),
    ],
)
def test_a_configuration_says_its_engines(tmp_path: Path, keys: str, pools: Pools, text: str) -> None:
    head = HEAD.replace("base: {}", f"base: {{{keys}}}")
    read = experiment_file.load(write_experiment(tmp_path, head=head)).configurations
    assert (read["base"].pools, read["prefix"].pools) == (pools, ONE_ENGINE)
    assert "; ".join(pool.text for pool in pools) == text


@pytest.mark.parametrize(
    "keys, expected",
    [
        ("routing: session", "base.routing: needs replicas; add them, or remove routing"),
        ("replicas: 0", "base.replicas: expected a whole number of at least 1, found '0'"),
        (
            "replicas: 2, routing: random",
            "base.routing: 'random' is unknown; known: round_robin, least_requests, prefix, session",
        ),
        (
            "replicas: 2, pools: {a: {classes: [short, long]}}",
            "base.replicas: does not go with pools, each of which has its own; remove one of them",
        ),
        ("pools: {}", "base.pools: has no pool; add one, such as short: {classes: [chat], replicas: 2}"),
        ("pools: {a: {classes: [short]}}", "base.pools: no pool has the class long; add it to one"),
        (
            "pools: {a: {classes: [short, long]}, b: {classes: [long]}}",
            "base.pools: class 'long' is in two pools; keep one",
        ),
        (
            "pools: {a: {classes: [short, long, tall]}}",
            "base.pools: 'tall' is not a class of the load; known: short, long",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_reported(tmp_path: Path, keys: str, expected: str) -> None:
    found = mistakes(write_experiment(tmp_path, head=HEAD.replace("base: {}", f"base: {{{keys}}}")))
    assert f"configurations.{expected}" in [line.split(": ", 1)[1] for line in found]
