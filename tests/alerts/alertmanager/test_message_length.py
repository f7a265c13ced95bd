"""The message of every SLO and of a large incident fits a phone: rendered by Prometheus and Alertmanager themselves."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.alertmanager.receivers import TEMPLATE
from compose.programs.tools import Tools
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import Measure, SloFile, loads
from tests.support.promtool import Case, Pace, Promtool, constant

MODEL = "organisation/Qwen2.5-14B-Instruct-GPTQ-Int4-with-a-rather-long-name"
CLASS = "interactive"
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
ALERT = re.compile(r"Labels:\{(.*)\}\s+Annotations:\{(.*)\}")
FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


def every_slo() -> SloFile:
    """One SLO for each signal."""
    thresholds = dict.fromkeys((Measure.AVAILABILITY, Measure.VALID_OUTPUT), "")
    lines = (
        f"  - {{name: {measure.replace('_', '-')}, classes: [{CLASS}], signal: {measure}"
        f"{thresholds.get(measure, ', threshold: 1s')}, objective: 99.5%}}\n"
        for measure in Measure
    )
    return loads(f"version: 1\nperiod: 30d\nclasses:\n  - {{name: {CLASS}}}\nslos:\n{''.join(lines)}")


def incident(spec: SloFile, target: str = "") -> Case:
    """All requests of three replicas are bad, shortly after a config change."""
    pace = Pace(spec)
    series: dict[str, str] = {}
    scrapes = pace.scrapes(62)
    for instance in (f"vllm-slo-sidecar-7d9f6c5b8-abcd{n}:9464" for n in range(3)):
        for slo in spec.slos:
            here = pace.slo_events(
                (50, 100, 0), (12, 100, 1), slo=slo.name, model=MODEL, more=f',instance="{instance}"{target}'
            )
            series |= {name.replace("siso", CLASS): values for name, values in here.items()}
        engine = f'instance="{instance}",engine="vllm-0.vllm.inference.svc:8000"{target}'
        change = f'{engine},setting="enable_prefix_caching",old="true",new="false"'
        series[f"llm_engine_config_change_timestamp_seconds{{{change}}}"] = constant(17_000, scrapes)
        series[f'llm_engine_requests_running{{{engine},model="{MODEL}",rank="0"}}'] = constant(3, scrapes)
    return Case(spec, series, pace.step)


Pages = list[dict[str, dict[str, str]]]


@pytest.fixture(scope="module")
def pages(programs: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return burn_pages(incident(every_slo()), programs, tmp_path_factory.mktemp("promtool"))


@pytest.fixture(scope="module")
def fleet_pages(programs: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The same pages with the labels of a cluster and a namespace."""
    case = incident(
        replace(every_slo(), group_by=("cluster", "namespace")), ',cluster="production-eu-1",namespace="inference"'
    )
    return burn_pages(case, programs, tmp_path_factory.mktemp("promtool"))


def burn_pages(case: Case, programs: tuple[Path, ...], folder: Path) -> Pages:
    """The page of each SLO with its labels and annotations, as promtool prints it."""
    at = Pace(case.spec).seconds(62)
    # The annotations read these, too.
    case.expect(at, "llm_engine:model:group == 0", {}).expect(at, "llm_slo:error_budget:remaining_ratio == 2", {})
    return printed(programs, folder, case, AlertName.BURN)


def printed(programs: tuple[Path, ...], folder: Path, case: Case, alert: AlertName) -> Pages:
    """The pages of this name with their labels and annotations, as promtool prints them."""
    at = case.until
    case.expect_alert(at, str(alert), {}, {})
    with pytest.raises(AssertionError) as failure:
        Promtool(programs[:1], folder).test([case])
    matches = [match.groups() for match in ALERT.finditer(str(failure.value).partition("got:[")[2])]
    return [
        {
            name: {key: json.loads(value) for key, value in FIELD.findall(text)}
            for name, text in zip(("labels", "annotations"), each, strict=True)
        }
        for each in matches
        if 'severity="page"' in each[0]
    ]


def message(tools: Tools, folder: Path, name: str, alerts: Pages, status: str) -> str:
    """What the template of Alertmanager makes of these alerts."""
    times = {"status": status, "startsAt": "2026-11-22T14:00:00Z", "endsAt": "2026-11-22T15:00:00Z"}
    data = {
        "status": status,
        "alerts": [{**each, **times} for each in alerts],
        "commonLabels": {"severity": "page"},
    }
    (folder / "data.json").write_text(json.dumps(data))
    (folder / "vllm-slo.tmpl").write_text(TEMPLATE)
    flags = (f"--template.glob={folder}/*.tmpl", f"--template.data={folder}/data.json")
    text = '--template.text={{ template "vllm_slo.' + name + '" . }}'
    done = subprocess.run(
        [str(tools.amtool), "template", "render", *flags, text], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip("\n")


def without_urls(text: str) -> str:
    return re.sub(r"(?m)^(Runbook|Dashboard|Traces): .*$", r"\1: ", text)


@pytest.mark.parametrize("status", ["firing", "resolved"])
@pytest.mark.parametrize(
    "where,place", [("pages", "Qwen2.5-14B"), ("fleet_pages", f"Qwen2.5-14B-I{ELLIPSIS} in production-eu{ELLIPSIS}: ")]
)
def test_the_message_of_each_slo_says_where_and_fits(
    tools: Tools, tmp_path: Path, request: pytest.FixtureRequest, where: str, place: str, status: str
) -> None:
    pages: Pages = request.getfixturevalue(where)
    assert {each["labels"]["slo"] for each in pages} == {slo.name for slo in every_slo().slos}
    for page in pages:
        title, text = (message(tools, tmp_path, name, [page], status) for name in ("title", "text"))
        assert f"{CLASS} on {place}" in title
        assert len(title) <= 120, title
        assert len(without_urls(text)) <= 600, text
        assert "Worst replicas: vllm-slo-sidecar-7d9f6c5b8-abcd" in text
        assert "Last config change: enable_prefix_caching at 04:43 UTC." in text


@pytest.mark.parametrize(
    "group_by,target,model",
    [
        pytest.param((), "", f"Qwen2.5-14B-Instruct-GP{ELLIPSIS}", id="one cluster"),
        pytest.param(
            ("cluster",),
            ',cluster="production-eu-1"',
            f"Qwen2.5-14B-I{ELLIPSIS} in production-eu{ELLIPSIS}",
            id="a fleet",
        ),
    ],
)
def test_the_message_of_a_bad_replica_names_it_and_fits(
    tools: Tools, programs: tuple[Path, ...], tmp_path: Path, group_by: tuple[str, ...], target: str, model: str
) -> None:
    spec = replace(every_slo(), group_by=group_by)
    pace, instance = Pace(spec), "vllm-slo-sidecar-7d9f6c5b8-abcd{}:9464"
    series: dict[str, str] = {}
    for number in range(3):
        here = f',instance="{instance.format(number)}"{target}'
        series |= pace.slo_events((10, 100, 0), (10, 100, float(number == 0)), model=MODEL, more=here)
    case = Case(spec, series, pace.step).expect(pace.seconds(14), "llm_instance:slo_bad_events:ratio == 2", {})
    (page,) = printed(programs, tmp_path, case, AlertName.OUTLIER)
    title, text = (message(tools, tmp_path, name, [page], "firing") for name in ("title", "text"))
    assert title == f"[PAGE] replica {instance.format(0)} of {model}: 100 % bad"
    assert len(title) <= 120
    assert len(without_urls(text)) <= 600, text
    assert "In the last 10 m, 100 % of the siso requests at" in text
    assert "were bad for the SLO ttft." in text


def test_the_title_says_what_where_how_bad_and_until_when(tools: Tools, tmp_path: Path, pages: Pages) -> None:
    ttft = next(each for each in pages if each["labels"]["slo"] == "ttft")
    model = "Qwen2.5-14B-Instruct-GP"
    assert message(tools, tmp_path, "title", [ttft], "firing") == (
        f"[PAGE] {CLASS} on {model}{ELLIPSIS}: 100 % of requests miss TTFT 1 s, budget spent"
    )


@pytest.mark.parametrize("status", ["firing", "resolved"])
def test_a_large_incident_fits_and_lists_its_causes_first(
    tools: Tools, tmp_path: Path, pages: Pages, status: str
) -> None:
    causes = [
        {
            "labels": {"alertname": name, "engine": "vllm-0.vllm.inference.svc:8000"},
            "annotations": {"summary": f"cause {name}", "description": f"the cause {name} " * 60, "runbook_url": "x"},
        }
        for name in (AlertName.ENGINE_DOWN, AlertName.KV_CACHE)
    ]
    alerts = [*pages, *causes]
    title, text = (message(tools, tmp_path, name, alerts, status) for name in ("title", "text"))
    assert title == f"[{'PAGE' if status == 'firing' else 'RESOLVED'}] cause LLMEngineDown (1 of 12)"
    assert text.startswith(f"*{status.upper()}* the cause LLMEngineDown")
    assert text.index("- cause LLMKVCacheFull") < text.index(f"- {CLASS} on")
    assert text.endswith("Alerts in total: 12.")
    assert len(without_urls(text)) <= 600, text
