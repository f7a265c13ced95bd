"""While an alert fires, every query of its runbook runs, and the first one names the bad replica."""

from dataclasses import replace

import pytest

from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import load, loads
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, UP, Case, Pace, Promtool, constant, counter
from tests.support.replica_series import BAD, GOOD, Fault, replicas
from tests.support.runbook_queries import COMMANDS, FOLDER, blocks, queries
from tests.support.slo_files import ENGINE_ONLY

LAB = load(ROOT / "compose/slos.yaml")
SPEC = replace(
    LAB,
    tenants=replace(LAB.tenants, allow=("tenant", "small")),
    alerting=replace(LAB.alerting, per_tenant=True),
)
HEALTHY, LONG_HEALTHY, FAULTY = 60, 1500, 300
"""Scrapes; the baselines of a week need a thirtieth of the period, which is 1440 s."""
LAST_WEEK = {AlertName.BUSY_BUT_USELESS, AlertName.PREFIX_CACHE}
"""Alerts that compare with last week."""
OTHERS = {
    AlertName.WATCHDOG,
    AlertName.TARGETS_MISSING,
    AlertName.UNMEASURED,
    AlertName.SCRAPE_INTERVAL,
    AlertName.TRAFFIC_LOST,
    *(AlertName.GPU_THROTTLED, AlertName.GPU_XID),
}
"""The first has no query, the second names a group of replicas; the others have a test of their own."""

FAULTS: dict[AlertName, tuple[Fault, ...]] = {
    AlertName.BURN: (Fault("llm_slo_bad_events_total", 10),),
    AlertName.OUTLIER: (Fault("llm_slo_bad_events_total", 10),),
    AlertName.LOW_TRAFFIC: (
        Fault("llm_slo_events_total", 0.2, {"class": "silo", "slo": "itl"}),
        Fault("llm_slo_bad_events_total", 0.05, {"class": "silo", "slo": "itl"}),
    ),
    AlertName.TENANT_BURN: (
        Fault("llm_slo_events_total", 0.3, {"tenant": "small"}),
        Fault("llm_slo_bad_events_total", 0.3, {"tenant": "small"}),
    ),
    AlertName.CLIENT_ERRORS: (Fault("llm_requests_total", 3, {"outcome": "client_error"}),),
    AlertName.REJECTIONS: (Fault("llm_requests_total", 10, {"outcome": "rejected"}),),
    AlertName.BUSY_BUT_USELESS: (Fault("llm_completion_tokens_total", 300), Fault("llm_goodput_requests_total", 0)),
    AlertName.QUEUE: (Fault("llm_engine_requests_waiting", 40),),
    AlertName.KV_CACHE: (Fault("llm_engine_kv_cache_usage_ratio", 0.98), Fault("llm_engine_preemptions_total", 1)),
    AlertName.PREFIX_CACHE: (Fault("llm_engine_prefix_cache_hits_tokens_total", 0),),
    AlertName.SIDECAR_DOWN: (Fault("up", 0),),
    AlertName.ENGINE_DOWN: (Fault("llm_engine_state", 1, {"state": "down"}),),
    AlertName.ENGINE_WEDGED: (Fault("llm_engine_state", 1, {"state": "wedged"}),),
    AlertName.ENGINE_RESTARTS: (Fault("llm_engine_start_time_seconds", 60, growth=0.5),),
    AlertName.DROPPING: (Fault("llm_sidecar_dropped_records_total", 1),),
    AlertName.LOG_LINES: (Fault("llm_sidecar_dropped_log_lines_total", 1),),
    AlertName.LOST: (Fault("llm_sidecar_lost_requests_total", 1),),
    AlertName.RELOAD_FAILED: (Fault("llm_sidecar_config_last_reload_successful", 0),),
    AlertName.UNMETERED: (Fault("llm_sidecar_unmetered_requests_total", 1),),
    AlertName.CONNECTIONS: (Fault("llm_sidecar_client_connections", 900),),
    AlertName.SIDECAR_RESTARTS: (Fault("llm_sidecar_restarts_total", 1),),
    AlertName.TASK_ERRORS: (Fault("llm_sidecar_task_errors_total", 1),),
    AlertName.FOLLOW_LAG: (Fault("llm_sidecar_follow_lag_bytes", 5e6),),
    AlertName.DROPPED_SPANS: (Fault("llm_sidecar_dropped_spans_total", 1),),
    AlertName.KV_TRANSFERS: (Fault("llm_engine_kv_transfer_failures_total", 1),),
    AlertName.CERTIFICATE: (Fault("llm_sidecar_certificate_expiry_timestamp_seconds", 5000),),
}


def case(alert: AlertName) -> tuple[Case, float]:
    """The fault, and the time at which the alert fires."""
    healthy = LONG_HEALTHY if alert in LAST_WEEK else HEALTHY
    series = replicas(healthy, FAULTY, *FAULTS[alert])
    return Case(SPEC, series, Pace(SPEC).step, sidecar_is_up=False), (healthy + FAULTY - 5) * SPEC.scrape_interval


def worst_first(query: str) -> str:
    """Only the first line of the result."""
    for order, first in (
        ("topk(10,", "topk(1,"),
        ("bottomk(10,", "bottomk(1,"),
        ("sort(", "bottomk(1, "),
        ("sort_desc(", "topk(1, "),
    ):
        if query.startswith(order):
            return first + query.removeprefix(order)
    return query


def expect_replica(fault: Case, at: float, alert: AlertName) -> Case:
    """The alert fires, the first query of its runbook finds the bad replica, and the others run."""
    path = FOLDER / f"{alert}.md"
    fault.expect(at, f'group (ALERTS{{alertname="{alert}",alertstate="firing"}})', {"{}": 1})
    for query in blocks(path):
        fault.expect(at, f"group by (instance) ({worst_first(query)})", {f'{{instance="{BAD}"}}': 1})
    for query in queries(path):  # a query may find nothing, but not fail
        fault.expect(at, f"group ({query}) or vector(1)", {"{}": 1})
    return fault


def test_every_alert_of_a_replica_has_a_fault() -> None:
    assert set(AlertName) - OTHERS == set(FAULTS)


@pytest.mark.parametrize("alert", FAULTS)
def test_while_an_alert_fires_its_runbook_finds_the_replica_and_every_query_runs(
    promtool: Promtool, alert: AlertName
) -> None:
    fault, at = case(alert)
    promtool.test([expect_replica(fault, at, alert)])


@pytest.mark.parametrize(
    "alert,faults",
    [
        (AlertName.GPU_THROTTLED, {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": (4, 72), "DCGM_FI_DEV_GPU_TEMP": (50, 90)}),
        (AlertName.GPU_XID, {"DCGM_FI_DEV_XID_ERRORS": (0, 79)}),
    ],
)
def test_the_gpu_with_a_fault_is_found(
    promtool: Promtool, alert: AlertName, faults: dict[str, tuple[float, float]]
) -> None:
    pace, bad = Pace(SPEC), '{gpu="1"}'
    series = {
        f'{name}{{Hostname="a",gpu="{gpu}"}}': f"{constant(good, pace.scrapes(3))} {constant(value, pace.scrapes(4))}"
        for name, (good, fault) in faults.items()
        for gpu, value in enumerate((good, fault))
    }
    found = Case(SPEC, series, pace.step).expect(pace.seconds(6), firing(alert, "gpu"), {bad: 1})
    (query,) = blocks(FOLDER / f"{alert}.md")
    promtool.test([found.expect(pace.seconds(6), f"group by (gpu) ({worst_first(query)})", {bad: 1})])


def test_the_target_with_another_scrape_interval_is_found(promtool: Promtool) -> None:
    series = {f'up{{job="vllm-slo-sidecar",instance="{BAD}"}}': "1 _x3 " * 150, UP.replace("s:1", GOOD): "1x600"}
    fault = Case(LAB, series, Pace(LAB).step, sidecar_is_up=False)
    promtool.test([expect_replica(fault, 590, AlertName.SCRAPE_INTERVAL)])


def test_without_a_sidecar_the_engine_that_does_not_count_an_slo_is_found(promtool: Promtool) -> None:
    pace = Pace(loads(ENGINE_ONLY)).coarse
    series: dict[str, str] = {}
    for instance, bound in ((BAD, "1.5"), (GOOD, "1.0")):
        labels = f'job="vllm",instance="{instance}",engine="0",model_name="org/m"'
        scrapes = pace.scrapes(6)
        series |= {
            f"up{{{labels}}}": constant(1, scrapes),
            f"vllm:time_to_first_token_seconds_count{{{labels}}}": counter((2, scrapes)),
            f'vllm:time_to_first_token_seconds_bucket{{{labels},le="{bound}"}}': counter((1, scrapes)),
        }
    fault = Case(pace.spec, series, pace.spec.scrape_interval, sidecar_is_up=False)
    alert = AlertName.UNMEASURED
    fault.expect(pace.seconds(4), firing(alert, "instance", slo="ttft"), {f'{{instance="{BAD}"}}': 1})
    (query,) = queries(FOLDER / f"{alert}.md")
    found = f"group by (instance) ({query.replace('SLO', 'ttft')})"
    promtool.test([fault.expect(pace.seconds(4), found, {f'{{instance="{BAD}"}}': 1})])


def test_the_queries_of_the_page_on_call_have_results(promtool: Promtool) -> None:
    fault, at = case(AlertName.BURN)
    for query in queries(COMMANDS):
        fault.expect(at, f"group ({query})", {"{}": 1})
    promtool.test(
        [fault.expect(at, f"group by (instance) ({worst_first(blocks(COMMANDS)[0])})", {f'{{instance="{BAD}"}}': 1})]
    )
