"""The load generator's metrics count by class and outcome."""

import pytest
from prometheus_client import CollectorRegistry

from exporters.vocabulary import signals
from exporters.vocabulary.signals import SEND_LATE
from exporters.vocabulary.slo_file import SHIPPED, load, loads
from loadgen.results.record import ClientOutcome
from loadgen.run.load_metrics import LoadCollector
from loadgen.schedule.prompts import Part
from loadgen.schedule.requests import PlannedRequest
from tests.loadgen.load_records import planned
from tests.loadgen.load_series import SLOS, series_values

NAMES = load(SHIPPED).class_names


def planned_request(name: str, prompt_tokens: int = 10) -> PlannedRequest:
    return planned(request_class=name, parts=(Part("p", prompt_tokens),))


def exposed(collector: LoadCollector, name: str) -> dict[tuple[str, ...], float]:
    return series_values(collector.collect(), name)


def test_every_combination_is_there_at_0_before_the_first_request() -> None:
    collector = LoadCollector(load(SHIPPED))
    assert exposed(collector, signals.LOAD_SCHEDULED.name) == {(name,): 0 for name in NAMES}
    assert exposed(collector, signals.LOAD_SENT.name) == {(name,): 0 for name in NAMES}
    assert exposed(collector, signals.LOAD_GOOD.name) == {(name,): 0 for name in NAMES}
    assert exposed(collector, signals.LOAD_ENDED.name) == {
        (name, outcome): 0 for name in NAMES for outcome in ClientOutcome
    }
    assert exposed(collector, signals.LOAD_SEND_LAG.count) == {(): 0}
    assert exposed(collector, signals.LOAD_RUN.name) == {}


def test_the_declared_families_are_exposed_and_no_others() -> None:
    registry = CollectorRegistry()
    registry.register(LoadCollector(load(SHIPPED)))
    families = {family.name: (family.type, family.documentation) for family in registry.collect()}
    assert families == {
        signal.name.removesuffix("_total"): (signal.kind.value, signal.help) for signal in signals.LOAD_SIGNALS
    }


@pytest.mark.parametrize(
    "request_, name",
    [
        pytest.param(planned_request("short", prompt_tokens=1000), "short", id="a class of the SLO file"),
        pytest.param(
            planned_request("of my own", prompt_tokens=10), "short", id="any other by its shape, as at the sidecar"
        ),
        pytest.param(planned_request("of my own", prompt_tokens=1000), "other", id="no shape fits"),
    ],
)
def test_the_slo_file_determines_the_class(request_: PlannedRequest, name: str) -> None:
    collector = LoadCollector(loads(SLOS))
    collector.count_scheduled(request_)
    collector.count_sent(request_, 0.001)
    collector.count_ended(request_, ClientOutcome.OK, good=True)
    for counter, key in (
        (signals.LOAD_SCHEDULED, (name,)),
        (signals.LOAD_SENT, (name,)),
        (signals.LOAD_ENDED, (name, "ok")),
        (signals.LOAD_GOOD, (name,)),
    ):
        counted = exposed(collector, counter.name)
        assert counted[key] == sum(counted.values()) == 1


def test_a_lag_counts_as_late_exactly_where_the_report_warns() -> None:
    collector = LoadCollector(load(SHIPPED))
    for lag in (0.0, SEND_LATE, SEND_LATE + 1e-6, 11.0):
        collector.count_sent(planned_request("siso"), lag)
    counted = exposed(collector, signals.LOAD_SEND_LAG.bucket)
    assert (counted["0.05",], counted["10.0",], counted["+Inf",]) == (2, 3, 4)


def test_a_run_is_1_while_it_lasts_and_only_the_last_one_is_kept() -> None:
    collector = LoadCollector(load(SHIPPED))
    collector.start_run("mixed", 0.0)
    assert exposed(collector, signals.LOAD_RUN.name) == {("1970-01-01T00:00:00Z", "mixed"): 1}
    collector.end_run()
    assert exposed(collector, signals.LOAD_RUN.name) == {("1970-01-01T00:00:00Z", "mixed"): 0}
    collector.start_run("demo", 3600.0)
    assert exposed(collector, signals.LOAD_RUN.name) == {("1970-01-01T01:00:00Z", "demo"): 1}


def test_the_counts_of_a_run_in_an_experiment_have_its_configuration() -> None:
    collector = LoadCollector(loads(SLOS), "seed-000", "prefix")
    request = planned_request("short")
    collector.start_run("mixed", 0.0)
    collector.count_scheduled(request)
    collector.count_sent(request, 0.0)
    collector.count_ended(request, ClientOutcome.TIMEOUT)
    assert exposed(collector, signals.LOAD_RUN.name) == {("1970-01-01T00:00:00Z", "mixed", "seed-000", "prefix"): 1}
    for counter, key, count in (
        (signals.LOAD_SCHEDULED, ("short",), 1),
        (signals.LOAD_SENT, ("short",), 1),
        (signals.LOAD_ENDED, ("short", "timeout"), 1),
        (signals.LOAD_GOOD, ("short",), 0),
    ):
        assert exposed(collector, counter.name)[*key, "seed-000", "prefix"] == count


def test_the_master_exposes_the_sums_of_its_workers() -> None:
    whole, master, worker = (LoadCollector(load(SHIPPED)) for _ in range(3))
    for number in range(6):
        request = planned_request(NAMES[number % 2])
        for collector in (whole, worker):
            collector.count_scheduled(request)
            collector.count_sent(request, number / 10)
            collector.count_ended(request, ClientOutcome.OK, good=number > 2)
        if number % 2:
            master.merge(worker.take())
    for name in (
        signals.LOAD_SCHEDULED.name,
        signals.LOAD_SENT.name,
        signals.LOAD_ENDED.name,
        signals.LOAD_GOOD.name,
        signals.LOAD_SEND_LAG.count,
    ):
        assert exposed(master, name) == exposed(whole, name)
    assert set(exposed(worker, signals.LOAD_SENT.name).values()) == {0}
