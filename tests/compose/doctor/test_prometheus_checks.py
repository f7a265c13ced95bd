"""Targets, intervals, rules, exemplars and histograms, from what Prometheus shows of itself."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.rule_file import render
from compose.doctor.finding import Finding, Place, State, Unread
from compose.doctor.prometheus_checks import (
    classic_histograms,
    config_revisions,
    exemplars,
    label_collisions,
    rule_content,
    scrape_interval,
    server,
    target_names,
    targets,
)
from compose.doctor.prometheus_reading import PrometheusReading, read_prometheus
from compose.doctor.rule_difference import Difference, Match, best_match, rendered
from compose.programs.tools import Tools
from exporters.analysis.label_collisions import COST as HIDDEN
from exporters.analysis.label_collisions import Collision
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load
from tests.support.fake_prometheus import FakePrometheus
from tests.support.ports import free_port
from tests.support.prometheus_process import prometheus
from tests.support.waiting import wait_until

SPEC = load(SHIPPED)
PLACE = Place("http://127.0.0.1:9090", "--prometheus", named=False)
REFUSED = Unread("http://127.0.0.1:9090: connection refused", "start it, or set --prometheus URL")
JOB = "vllm-slo-sidecar"


def reading(
    active: Sequence[Mapping[str, Any]] | Unread = REFUSED,
    config: Mapping[str, Any] | Unread = REFUSED,
    flags: Mapping[str, str] | Unread = REFUSED,
) -> PrometheusReading:
    return PrometheusReading(
        place=PLACE,
        version=REFUSED,
        flags=flags,
        config=config,
        targets=active,
        rules=REFUSED,
        collisions=REFUSED,
        clock=REFUSED,
        revisions=REFUSED,
        changed_settings=REFUSED,
        engine_pods=REFUSED,
    )


def target(job: str = JOB, health: str = "up", interval: str = "15s", error: str = "") -> dict[str, Any]:
    return {
        "labels": {"job": job, "instance": "10.0.0.1:9464"},
        "scrapePool": f"pool of {job}",
        "health": health,
        "scrapeInterval": interval,
        "lastError": error,
        "scrapeUrl": "http://10.0.0.1:9464/metrics",
    }


COST = "dashboards, alerts and budgets miss the requests and the engines of these targets"


@pytest.mark.parametrize(
    "active,expected",
    [
        pytest.param([target(), target(), target("x", "down")], (State.OK, "2 up", "", ""), id="up"),
        pytest.param(
            [target(), target(health="down", error="connection refused")],
            (
                State.FAILED,
                "1 of 2 are not up: 10.0.0.1:9464: connection refused",
                COST,
                "curl http://10.0.0.1:9464/metrics",
            ),
            id="one is down",
        ),
        pytest.param(
            [target(health="unknown")],
            (
                State.FAILED,
                "1 of 1 are not up: 10.0.0.1:9464: no scrape yet",
                COST,
                "curl http://10.0.0.1:9464/metrics",
            ),
            id="not scraped yet",
        ),
        pytest.param(
            [target("node"), target("llm")],
            (
                State.FAILED,
                "there are none; jobs with targets: llm, node",
                COST,
                f"name the scrape job {JOB}, or set scrape_job in the SLO file",
            ),
            id="another name of the job",
        ),
        pytest.param(
            [],
            (
                State.FAILED,
                "there are none; jobs with targets: none",
                COST,
                f"name the scrape job {JOB}, or set scrape_job in the SLO file",
            ),
            id="no target at all",
        ),
        pytest.param(REFUSED, (State.NOT_CHECKED, REFUSED.reason, "", REFUSED.fix), id="not read"),
    ],
)
def test_targets(active: list[dict[str, Any]] | Unread, expected: tuple[State, str, str, str]) -> None:
    state, found, cost, fix = expected
    assert targets(reading(active), SPEC) == Finding(state, f"targets of the job {JOB}", found, cost, fix)


def in_pod(name: str, instance: str) -> dict[str, Any]:
    found = {"__meta_kubernetes_namespace": "inference", "__meta_kubernetes_pod_name": name}
    return target() | {"labels": {"job": JOB, "instance": instance}, "discoveredLabels": found}


ADDRESS_COST = "pages and boards name an address, for which the pod must be searched"
ADDRESS_FIX = (
    "relabel: source_labels: [__meta_kubernetes_namespace, __meta_kubernetes_pod_name], separator: /, "
    "target_label: instance, as the PodMonitor of the chart does"
)


@pytest.mark.parametrize(
    "active,expected",
    [
        pytest.param(
            [in_pod("a", "10.0.0.1:9464"), in_pod("b", "inference/b"), in_pod("c", "10.0.0.3:9464")],
            (State.WARNING, "10.0.0.1:9464 is the pod inference/a and 1 more", ADDRESS_COST, ADDRESS_FIX),
            id="two are named by their address",
        ),
        pytest.param(
            [target(), in_pod("b", "inference/b"), in_pod("c", "c")],
            (State.OK, "no pod is named by its address", "", ""),
            id="named, or not a pod",
        ),
        pytest.param([], (State.NOT_CHECKED, "there are no targets", "", f"name the scrape job {JOB}"), id="none"),
        pytest.param(REFUSED, (State.NOT_CHECKED, REFUSED.reason, "", REFUSED.fix), id="not read"),
    ],
)
def test_target_names(active: list[dict[str, Any]] | Unread, expected: tuple[State, str, str, str]) -> None:
    state, found, cost, fix = expected
    assert target_names(reading(active), SPEC) == Finding(state, "label instance of the targets", found, cost, fix)


INTERVAL_COST = "counts of a step are less accurate, and alerts on targets that are down or stalled are late or silent"
INTERVAL_FIX = f"set scrape_interval: 15s for the job {JOB}, or correct the SLO file and render again"


@pytest.mark.parametrize(
    "active,expected",
    [
        pytest.param([target(), target("x", interval="1m")], (State.OK, "15s, as in the SLO file", "", ""), id="same"),
        pytest.param(
            [target(), target(interval="1m")],
            (State.FAILED, "15s, 1m, and the SLO file has 15s", INTERVAL_COST, INTERVAL_FIX),
            id="one differs",
        ),
        pytest.param(
            [target(interval="30s")],
            (State.FAILED, "30s, and the SLO file has 15s", INTERVAL_COST, INTERVAL_FIX),
            id="all differ",
        ),
        pytest.param(
            [], (State.NOT_CHECKED, "there are no targets", "", f"name the scrape job {JOB}"), id="no targets"
        ),
        pytest.param(
            [{"labels": {"job": JOB}}],
            (State.NOT_CHECKED, "the server does not show the interval of its targets", "", ""),
            id="not shown",
        ),
        pytest.param(REFUSED, (State.NOT_CHECKED, REFUSED.reason, "", REFUSED.fix), id="not read"),
    ],
)
def test_the_scrape_interval(active: list[dict[str, Any]] | Unread, expected: tuple[State, str, str, str]) -> None:
    state, found, cost, fix = expected
    finding = scrape_interval(reading(active), SPEC)
    assert finding == Finding(state, "scrape_interval of the targets", found, cost, fix)


def test_the_scrape_interval_is_not_checked_against_a_guess() -> None:
    unknown = Unread("it is not known which SLO file is in use", "vllm-slo doctor --slos FILE")
    assert scrape_interval(reading([target()]), unknown) == unknown.not_checked("scrape_interval of the targets")


@pytest.mark.parametrize(
    "flags,config,state,found,fix",
    [
        pytest.param({"enable-feature": "a,exemplar-storage"}, {}, State.OK, "exemplars are stored", "", id="enabled"),
        pytest.param(
            {"enable-feature": ""},
            {},
            State.WARNING,
            "exemplar-storage is not enabled",
            "prometheus --enable-feature=exemplar-storage",
            id="not enabled",
        ),
        pytest.param(
            {"enable-feature": "exemplar-storage"},
            {"storage": {"exemplars": {"max_exemplars": 0}}},
            State.WARNING,
            "max_exemplars is 0",
            "remove max_exemplars: 0",
            id="none is stored",
        ),
        pytest.param(REFUSED, {}, State.NOT_CHECKED, REFUSED.reason, REFUSED.fix, id="not read"),
    ],
)
def test_exemplars(flags: dict[str, str] | Unread, config: dict[str, Any], state: State, found: str, fix: str) -> None:
    cost = "points of latency panels have no links to traces" if state is State.WARNING else ""
    finding = exemplars(reading(flags=flags, config=config))
    assert finding == Finding(state, "--enable-feature, storage.exemplars", found, cost, fix)


CONVERTED = (
    State.FAILED,
    f"true for the job pool of {JOB}: the _bucket series are not stored",
    "panels of quantiles are empty, and rules on engine histograms read nothing",
    "set convert_classic_histograms_to_nhcb: false, or always_scrape_classic_histograms: true, for this job",
)
KEPT = (State.OK, "histograms keep their _bucket series", "", "")
NHCB = {"convert_classic_histograms_to_nhcb": True}


@pytest.mark.parametrize(
    "common,ours,expected",
    [
        pytest.param({}, {}, KEPT, id="Prometheus 2, or the default"),
        pytest.param({}, NHCB, CONVERTED, id="for the job"),
        pytest.param(NHCB, {}, CONVERTED, id="for all jobs"),
        pytest.param(NHCB, {"convert_classic_histograms_to_nhcb": False}, KEPT, id="for the others"),
        pytest.param({}, {**NHCB, "always_scrape_classic_histograms": True}, KEPT, id="both formats"),
        pytest.param(NHCB, {"always_scrape_classic_histograms": False}, CONVERTED, id="as Prometheus 3 prints it"),
    ],
)
def test_histograms(common: dict[str, Any], ours: dict[str, Any], expected: tuple[State, str, str, str]) -> None:
    config = {
        "global": common,
        "scrape_configs": [{"job_name": f"pool of {JOB}", **ours}, {"job_name": "other", **NHCB}],
    }
    state, found, cost, fix = expected
    finding = classic_histograms(reading([target()], config), SPEC)
    assert finding == Finding(state, "convert_classic_histograms_to_nhcb", found, cost, fix)


@pytest.mark.parametrize(
    "active,config,reason",
    [
        pytest.param([], {}, "there are no targets", id="no targets"),
        pytest.param([target()], REFUSED, REFUSED.reason, id="no configuration"),
        pytest.param(REFUSED, {}, REFUSED.reason, id="neither"),
    ],
)
def test_histograms_are_not_checked_without_targets_or_configuration(
    active: list[dict[str, Any]] | Unread, config: dict[str, Any] | Unread, reason: str
) -> None:
    finding = classic_histograms(reading(active, config), SPEC)
    assert (finding.state, finding.found) == (State.NOT_CHECKED, reason)


TOTAL = 155
RULES = "http://127.0.0.1:9090/api/v1/rules"
RENDER = "vllm-slo alerts render --slos slos.yaml --out"


def match(*, missing: int = 0, changed: int = 0) -> Match:
    names = tuple(f"r{n}" for n in range(TOTAL))
    return Match("slos.yaml", SPEC, TOTAL, Difference(names[:missing], names[:changed], ()))


@pytest.mark.parametrize(
    "found,place,slos,expected",
    [
        pytest.param(
            match(), PLACE, None, Finding(State.OK, RULES, "all 155 rules are those of slos.yaml"), id="the same"
        ),
        pytest.param(
            match(missing=TOTAL),
            PLACE,
            Path("slos.yaml"),
            Finding(
                State.FAILED,
                RULES,
                "it has none of the rules",
                "no alert of vllm-slo fires, and no budget is recorded",
                f"{RENDER} DIR, then: curl -X POST http://127.0.0.1:9090/-/reload",
            ),
            id="none is loaded",
        ),
        pytest.param(
            match(changed=2),
            Path("rules/slo.yml"),
            Path("slos.yaml"),
            Finding(
                State.FAILED,
                "rules/slo.yml",
                "the rules are not those of slos.yaml: 2 changed (r0)",
                "alerts and budgets follow objectives, thresholds or formulas that the SLO file or this version does "
                "not have",
                f"{RENDER} rules, then: reload Prometheus",
            ),
            id="a file of an earlier SLO file",
        ),
        pytest.param(
            match(changed=2, missing=1),
            PLACE,
            None,
            Finding(
                State.NOT_CHECKED,
                RULES,
                "the rules are not those of slos.yaml (1 missing (r0), 2 changed (r0))",
                fix="vllm-slo doctor --slos FILE",
            ),
            id="the SLO file was guessed",
        ),
        pytest.param(REFUSED, PLACE, None, REFUSED.not_checked(RULES), id="not read"),
        pytest.param(
            Unread("--rules is not set"),
            "--rules",
            None,
            Unread("--rules is not set").not_checked("--rules"),
            id="no file",
        ),
    ],
)
def test_rules(found: Match | Unread, place: Place | Path | str, slos: Path | None, expected: Finding) -> None:
    assert rule_content(found, place, slos) == expected


POD, ENDPOINT = (
    Collision("pod", ["llm_requests_total"], ["llm"]),
    Collision("endpoint", ["llm_requests_total"], ["llm"]),
)


@pytest.mark.parametrize(
    "collided, state, found, cost, fix",
    [
        pytest.param([], State.OK, "none is exported_*", "", "", id="none"),
        pytest.param([POD], State.FAILED, POD.found, HIDDEN, POD.fix, id="one"),
        pytest.param(
            [ENDPOINT, POD],
            State.FAILED,
            f"{ENDPOINT.found}; {POD.found}",
            HIDDEN,
            f"{ENDPOINT.fix}; {POD.fix}",
            id="two",
        ),
        pytest.param(REFUSED, State.NOT_CHECKED, REFUSED.reason, "", REFUSED.fix, id="not read"),
    ],
)
def test_labels(collided: Sequence[Collision] | Unread, state: State, found: str, cost: str, fix: str) -> None:
    finding = label_collisions(replace(reading(), collisions=collided))
    assert finding == Finding(state, "labels of the series llm_*", found, cost, fix)


def test_a_server_without_the_status_endpoints_is_read_as_far_as_it_goes() -> None:
    """Such as Mimir or VictoriaMetrics."""

    def respond(path: str, _: dict[str, str]) -> tuple[int, Any]:
        match path:
            case "/api/v1/rules":
                return 200, {"data": {"groups": [{"name": "vllm-slo-burn"}]}}
            case "/api/v1/query":
                return 200, {"data": {"resultType": "vector", "result": [{"metric": {}, "value": [7, "7.5"]}]}}
            case "/api/v1/status/config":
                return 200, {"data": {"yaml": ": ["}}
            case _:
                return 404, b"page not found"

    fix = "check --prometheus; other servers may lack this endpoint"
    with FakePrometheus(respond) as fake:
        found = read_prometheus(Place(fake.url, "--prometheus", named=True))
        assert found.formatted("up") is None
    assert found.rules == Unread(f"{fake.url}/api/v1/rules: the response is not from Prometheus", fix)
    assert not isinstance(found.clock, Unread)
    assert found.clock.time == 7.5
    assert found.flags == Unread(f"{fake.url}/api/v1/status/flags: HTTP 404 Not Found", fix)
    assert found.collisions == Unread(f"{fake.url}/api/v1/labels: HTTP 404 Not Found", fix)
    assert found.config == Unread(f"{fake.url}/api/v1/status/config: the response is not from Prometheus", fix)
    assert server(found) == Finding(
        State.FAILED,
        fake.url,
        f"{fake.url}/api/v1/status/buildinfo: HTTP 404 Not Found",
        "no alert fires, and dashboards are empty",
        fix,
    )


def test_a_server_that_is_not_there_is_one_reason_for_all_checks() -> None:
    place = Place(f"http://127.0.0.1:{free_port()}", "--prometheus", named=False)
    found = read_prometheus(place)
    refused = Unread(f"{place.url}: connection refused", "start it, or set --prometheus URL")
    parts = [found.version, found.flags, found.config, found.targets, found.rules, found.collisions, found.clock]
    assert [*parts, found.revisions, found.changed_settings, found.engine_pods] == [refused] * 10
    assert server(found) == refused.not_checked(place.url)


def read_after_a_scrape(place: Place) -> PrometheusReading:
    def is_scraped() -> bool:
        active = read_prometheus(place).targets
        return not isinstance(active, Unread) and any(each["lastError"] for each in active)

    wait_until(is_scraped)
    return read_prometheus(place)


@pytest.mark.long
async def test_a_real_prometheus_shows_the_rules_and_settings_that_it_was_given(tools: Tools, tmp_path: Path) -> None:
    """The target refuses connections."""
    rules, port = tmp_path / "rules.yaml", free_port()
    rules.write_text(render(SPEC))
    edited = replace(SPEC, slos=tuple(replace(slo, objective=0.9) for slo in SPEC.slos))

    def compare(found: PrometheusReading, spec: SloFile) -> Match:
        assert not isinstance(found.rules, Unread)
        return best_match([("slos.yaml", spec)], found.rules, found.formatted)

    async with prometheus(tools.prometheus, tmp_path, port, job=JOB, rules=rules) as url:
        found = await asyncio.to_thread(read_after_a_scrape, Place(url, "--prometheus", named=True))
        same = await asyncio.to_thread(compare, found, SPEC)
        other = await asyncio.to_thread(compare, found, edited)
    assert (same.difference.count, same.total) == (0, len(rendered(SPEC)))
    assert other.difference.changed
    assert all(check(found).state is State.OK for check in (server, exemplars))
    assert classic_histograms(found, SPEC).state is State.OK
    assert scrape_interval(found, SPEC).found == "1s, and the SLO file has 15s"
    down = targets(found, SPEC)
    assert down.state is State.FAILED
    assert down.found.startswith(f"1 of 1 are not up: 127.0.0.1:{port}: ")


SERIES = "llm_engine_config_info of the last day"
A, B = ("10.0.0.1:9464", "a:8000"), ("10.0.0.2:9464", "b:8000")


@pytest.mark.parametrize(
    "revisions, changed, expected",
    [
        pytest.param(
            {A: 1, B: 2},
            {B: 1},
            Finding(State.OK, SERIES, "no revision without a change; engines: 2"),
            id="each new revision has a change",
        ),
        pytest.param(
            {A: 1, B: 2},
            {A: 1},
            Finding(
                State.WARNING,
                SERIES,
                "10.0.0.2:9464, engine b:8000: 2 revisions, 0 changed settings",
                "a new revision looks like a config change on boards and in `vllm-slo compare`; its cause is unknown",
                "update the sidecar, and start it with --state FILE, so that it knows the settings before its restart",
            ),
            id="a revision without a change",
        ),
        pytest.param({}, {}, Finding(State.NOT_CHECKED, SERIES, "there are no series of an engine"), id="no engine"),
        pytest.param(
            REFUSED, REFUSED, Finding(State.NOT_CHECKED, SERIES, REFUSED.reason, fix=REFUSED.fix), id="not read"
        ),
    ],
)
def test_config_revisions(
    revisions: Mapping[tuple[str, str], int] | Unread,
    changed: Mapping[tuple[str, str], int] | Unread,
    expected: Finding,
) -> None:
    assert config_revisions(replace(reading(), revisions=revisions, changed_settings=changed)) == expected


def test_the_counts_of_revisions_are_read_by_sidecar_and_engine() -> None:
    def respond(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
        labels = {"instance": A[0], "engine": A[1]}
        found = "llm_engine_config_info" in parameters.get("query", "")
        result = [{"metric": labels, "value": [1.0, "2"]}] if found else []
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    with FakePrometheus(respond) as server:
        read = read_prometheus(Place(server.url, "--prometheus", named=True))
    assert (read.revisions, read.changed_settings) == ({A: 2}, {})
