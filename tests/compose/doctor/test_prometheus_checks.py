"""Targets, intervals, rules, exemplars and histograms, from what Prometheus shows of itself."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.rule_file import render
from compose.doctor.finding import Place, State, Unread
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
from exporters.analysis.label_collisions import Collision
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load
from tests.compose.doctor.golden_findings import assert_golden
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


Targets = list[dict[str, Any]] | Unread


def test_targets() -> None:
    cases: dict[str, Targets] = {
        "up": [target(), target(), target("x", "down")],
        "one is down": [target(), target(health="down", error="connection refused")],
        "not scraped yet": [target(health="unknown")],
        "another name of the job": [target("node"), target("llm")],
        "no target at all": [],
        "not read": REFUSED,
    }
    assert_golden("scrape targets", {name: targets(reading(active), SPEC) for name, active in cases.items()})


def in_pod(name: str, instance: str) -> dict[str, Any]:
    found = {"__meta_kubernetes_namespace": "inference", "__meta_kubernetes_pod_name": name}
    return target() | {"labels": {"job": JOB, "instance": instance}, "discoveredLabels": found}


def test_target_names() -> None:
    by_address = [in_pod("a", "10.0.0.1:9464"), in_pod("b", "inference/b"), in_pod("c", "10.0.0.3:9464")]
    cases: dict[str, Targets] = {
        "two are named by their address": by_address,
        "named, or not a pod": [target(), in_pod("b", "inference/b"), in_pod("c", "c")],
        "none": [],
        "not read": REFUSED,
    }
    assert_golden("target names", {name: target_names(reading(active), SPEC) for name, active in cases.items()})


def test_the_scrape_interval() -> None:
    cases: dict[str, Targets] = {
        "same": [target(), target("x", interval="1m")],
        "one differs": [target(), target(interval="1m")],
        "all differ": [target(interval="30s")],
        "no targets": [],
        "not shown": [{"labels": {"job": JOB}}],
        "not read": REFUSED,
    }
    found = {name: scrape_interval(reading(active), SPEC) for name, active in cases.items()}
    unknown = Unread("it is not known which SLO file is in use", "vllm-slo doctor --slos FILE")
    found["the SLO file is a guess"] = scrape_interval(reading([target()]), unknown)
    assert_golden("scrape interval", found)


def test_exemplars() -> None:
    enabled = {"enable-feature": "a,exemplar-storage"}
    cases = {
        "enabled": reading(flags=enabled, config={}),
        "not enabled": reading(flags={"enable-feature": ""}, config={}),
        "none is stored": reading(flags=enabled, config={"storage": {"exemplars": {"max_exemplars": 0}}}),
        "not read": reading(config={}),
    }
    assert_golden("exemplars", {name: exemplars(each) for name, each in cases.items()})


def test_histograms() -> None:
    converts, keeps = "convert_classic_histograms_to_nhcb", "always_scrape_classic_histograms"
    cases = {
        "Prometheus 2, or the default": ({}, {}),
        "for the job": ({}, {converts: True}),
        "for all jobs": ({converts: True}, {}),
        "for the others": ({converts: True}, {converts: False}),
        "both formats": ({}, {converts: True, keeps: True}),
        "as Prometheus 3 prints it": ({converts: True}, {keeps: False}),
    }
    found = {}
    for name, (common, ours) in cases.items():
        jobs = [{"job_name": f"pool of {JOB}", **ours}, {"job_name": "other", converts: True}]
        found[name] = classic_histograms(reading([target()], {"global": common, "scrape_configs": jobs}), SPEC)
    found["no targets"] = classic_histograms(reading([], {}), SPEC)
    found["no configuration"] = classic_histograms(reading([target()]), SPEC)
    found["neither"] = classic_histograms(reading(config={}), SPEC)
    assert_golden("histograms", found)


TOTAL = 155


def match(*, missing: int = 0, changed: int = 0) -> Match:
    names = tuple(f"r{n}" for n in range(TOTAL))
    return Match("slos.yaml", SPEC, TOTAL, Difference(names[:missing], names[:changed], ()))


def test_rules() -> None:
    slos = Path("slos.yaml")
    found = {
        "the same": rule_content(match(), PLACE, None),
        "none is loaded": rule_content(match(missing=TOTAL), PLACE, slos),
        "a file of an earlier SLO file": rule_content(match(changed=2), Path("rules/slo.yml"), slos),
        "the SLO file was guessed": rule_content(match(changed=2, missing=1), PLACE, None),
        "not read": rule_content(REFUSED, PLACE, None),
        "no file": rule_content(Unread("--rules is not set"), "--rules", None),
    }
    assert_golden("rules", found)


def test_labels() -> None:
    pod, endpoint = (Collision(label, ["llm_requests_total"], ["llm"]) for label in ("pod", "endpoint"))
    cases: dict[str, Sequence[Collision] | Unread]
    cases = {"none": [], "one": [pod], "two": [endpoint, pod], "not read": REFUSED}
    found = {name: label_collisions(replace(reading(), collisions=each)) for name, each in cases.items()}
    assert_golden("labels", found)


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
    assert_golden("prometheus", {"another server": server(found)}, {fake.url: "URL"})


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


Counts = Mapping[tuple[str, str], int] | Unread
A, B = ("10.0.0.1:9464", "a:8000"), ("10.0.0.2:9464", "b:8000")


def test_config_revisions() -> None:
    cases: dict[str, tuple[Counts, Counts]] = {
        "each new revision has a change": ({A: 1, B: 2}, {B: 1}),
        "a revision without a change": ({A: 1, B: 2}, {A: 1}),
        "no engine": ({}, {}),
        "not read": (REFUSED, REFUSED),
    }
    found = {
        name: config_revisions(replace(reading(), revisions=revisions, changed_settings=changed))
        for name, (revisions, changed) in cases.items()
    }
    assert_golden("config revisions", found)


def test_the_counts_of_revisions_are_read_by_sidecar_and_engine() -> None:
    def respond(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
        labels = {"instance": A[0], "engine": A[1]}
        found = "llm_engine_config_info" in parameters.get("query", "")
        result = [{"metric": labels, "value": [1.0, "2"]}] if found else []
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    with FakePrometheus(respond) as server:
        read = read_prometheus(Place(server.url, "--prometheus", named=True))
    assert (read.revisions, read.changed_settings) == ({A: 2}, {})
