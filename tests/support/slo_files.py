"""Small SLO files: one for the sidecar, one for vLLM alone, and mistakes with their messages."""

import pytest

from exporters.vocabulary.slo_file import Availability, Latency, Measure, Sli, SloFile, Unary, ValidOutput, loads

MINIMAL = """\
version: 1
period: 30d
scrape_interval: 15s
classes:
  - {name: short, max_tokens: "<=512"}
  - {name: long}
slos:
  - {name: ttft, classes: [short], signal: ttft, threshold: 5s, objective: 95%}
"""

ENGINE_ONLY = """\
version: 1
period: 30d
source: engine
classes:
  - {name: short, max_tokens: "<=512"}
  - {name: long}
slos:
  - {name: ttft, classes: [short, long], signal: ttft, threshold: 1s, objective: 95%}
  - {name: e2e, classes: [short, long], signal: e2e, threshold: 30s, objective: 99%}
"""


def sli(measure: Measure, threshold: float = 1.0, unary: Unary = Unary.SKIP) -> Sli:
    """The SLI of any signal, with the threshold if it has one."""
    match measure:
        case Measure.AVAILABILITY:
            return Availability()
        case Measure.VALID_OUTPUT:
            return ValidOutput()
        case _:
            return Latency(measure, threshold, unary)


NO_DURATION = "is not a valid duration; write a number with a unit, such as 250ms, 5s, 1m, 12h or 30d"
MISTAKES = [
    pytest.param("version: 1", "version: 2", "slos.yaml:1:10: version: '2' is not supported; write 1",
        id="unknown version"),
    pytest.param("version: 1", "version: 0x_", "slos.yaml:1:10: version: expected a number, found '0x_'",
        id="integer without digits"),
    pytest.param("period: 30d", "period: month", f"slos.yaml:2:9: period: 'month' {NO_DURATION}", id="no duration"),
    pytest.param("classes:\n", "first_token_timeout: never\nclasses:\n",
        "slos.yaml:4:22: first_token_timeout: 'never' is not a valid duration; write a number with a unit, such as "
        "250ms, 5s, 1m or 12h, or none", id="no timeout"),
    pytest.param("period: 30d", "period: 1d",
        "slos.yaml:2:9: period: is too short for a scrape interval of 15 s: the shortest burn rate window would be "
        "10 s and needs 4 scrapes; use a period of at least 144h or a scrape_interval of at most 2.5s",
        id="period too short for its scrapes"),
    pytest.param("scrape_interval: 15s", "scrape_intervall: 15s",
        "slos.yaml:3:1: scrape_intervall: unknown key; did you mean 'scrape_interval'?", id="unknown key"),
    pytest.param("scrape_interval: 15s", "period: 15d", "slos.yaml:3:1: period: duplicate key; keep one",
        id="key given twice"),
    pytest.param('max_tokens: "<=512"', 'max_tokens: "512"',
        "slos.yaml:5:31: classes[0].max_tokens: '512' is not a valid bound; write a comparison in quotes, such as "
        '"<512" or ">=2048"', id="no bound"),
    pytest.param("{name: long}", "{name: long, route: embedings}",
        "slos.yaml:6:25: classes[1].route: 'embedings' is not a route with SLO events; did you mean 'embeddings'?",
        id="unknown route"),
    pytest.param("{name: long}", "{name: long, route: [rerank, models]}",
        "slos.yaml:6:34: classes[1].route[1]: 'models' is not a route with SLO events; known: chat_completions, "
        "completions, responses, messages, count_tokens, embeddings, rerank, score, classify, pooling, "
        "audio_transcriptions, audio_translations, tokenize, detokenize", id="route without SLO events"),
    pytest.param("{name: long}", "{name: long, route: [rerank, rerank]}",
        "slos.yaml:6:34: classes[1].route[1]: 'rerank' is listed twice; keep one", id="route listed twice"),
    pytest.param("{name: long}", "{name: long, route: []}",
        "slos.yaml:6:25: classes[1].route: is empty; name at least one route, or remove it for any",
        id="no routes"),
    pytest.param("{name: long}", "{name: other}",
        "slos.yaml:6:12: classes[1].name: 'other' is reserved for requests that fit no class; choose another name",
        id="reserved class"),
    pytest.param("{name: long}", "{name: warm-up}",
        "slos.yaml:6:12: classes[1].name: 'warm-up' is reserved for requests that prepare an engine, which no SLO "
        "judges; choose another name", id="class of the warm-up"),
    pytest.param("{name: long}", "{name: short}",
        "slos.yaml:6:12: classes[1].name: 'short' is the name of another class; names must be unique",
        id="class named twice"),
    pytest.param("{name: long}", "{name: Long Ones}",
        "slos.yaml:6:12: classes[1].name: 'Long Ones' is not a valid name; use lower-case letters, digits, - and _, "
        "starting with a letter", id="no name"),
    pytest.param("{name: long}", "{name: long, title: '{{ x }}'}",
        "slos.yaml:6:25: classes[1].title: '{{ x }}' is not a valid title; write up to 40 characters without { } | \" "
        "$ ` \\, such as short in, short out", id="template in a title"),
    pytest.param("classes: [short]", "classes: [shrot]",
        "slos.yaml:8:28: slos[0].classes[0]: 'shrot' is not a class of this file; did you mean 'short'?",
        id="unknown class"),
    pytest.param("signal: ttft", "signal: tft",
        "slos.yaml:8:44: slos[0].signal: 'tft' is unknown; did you mean 'ttft'?", id="unknown signal"),
    pytest.param("threshold: 5s, ", "",
        "slos.yaml:8:5: slos[0]: threshold is missing; ttft needs one, such as threshold: 5s", id="no threshold"),
    pytest.param("signal: ttft", "signal: availability",
        "slos.yaml:8:69: slos[0].threshold: availability takes no threshold; remove it or choose a latency signal",
        id="threshold for availability"),
    pytest.param("signal: ttft", "signal: valid_output",
        "slos.yaml:8:69: slos[0].threshold: valid_output takes no threshold; remove it or choose a latency signal",
        id="threshold for valid_output"),
    pytest.param("objective: 95%", "objective: 100%",
        "slos.yaml:8:76: slos[0].objective: 100% leaves no error budget, so the burn rate is undefined; write at "
        "most 99.9%", id="objective of 100 %"),
    pytest.param("objective: 95%", "objective: 0%",
        "slos.yaml:8:76: slos[0].objective: 0% is always met; write a percentage above 0%, such as 95%",
        id="objective of 0 %"),
    pytest.param("objective: 95%", "objective: 0.95",
        "slos.yaml:8:76: slos[0].objective: '0.95' is not a valid percentage; write 95%",
        id="objective that is not a percentage"),
    pytest.param("slos:\n", "alerting: {min_bad: few}\nslos:\n",
        "slos.yaml:7:21: alerting.min_bad: expected a whole number of at least 1, found 'few'", id="no number"),
    pytest.param("slos:\n", "alerting: {cold_start: soon}\nslos:\n",
        f"slos.yaml:7:24: alerting.cold_start: 'soon' {NO_DURATION}", id="cold start that is not a duration"),
    pytest.param("slos:\n", "alerting: {per_tenant: true}\nslos:\n",
        "slos.yaml:7:11: alerting: per_tenant needs tenants; list them in tenants.allow or write false",
        id="rules per tenant without tenants"),
    pytest.param("slos:\n", "group_by: [cluster, model]\nslos:\n",
        "slos.yaml:7:21: group_by[1]: 'model' is a label of every target or of our series; name one that divides the "
        "targets", id="a group by a label of our series"),
    pytest.param("slos:\n", "group_by: [k8s-cluster]\nslos:\n",
        "slos.yaml:7:12: group_by[0]: 'k8s-cluster' is not a label name; use letters, digits and _, first a letter",
        id="a group by no label name"),
    pytest.param("slos:\n", "group_by: [cluster, cluster]\nslos:\n",
        "slos.yaml:7:21: group_by[1]: 'cluster' is listed twice; keep one", id="a group by the same label twice"),
    pytest.param("slos:\n", "scrape_job: []\nslos:\n",
        "slos.yaml:7:13: scrape_job: is empty; name at least one scrape job", id="no scrape job"),
    pytest.param("slos:\n", "scrape_job: [a/b, a/b]\nslos:\n",
        "slos.yaml:7:19: scrape_job[1]: 'a/b' is listed twice; keep one", id="the same scrape job twice"),
    pytest.param("slos:\n", "labels: {severity: high}\nslos:\n",
        "slos.yaml:7:20: labels.severity: 'severity' is a label of every target or of our series; choose another name",
        id="a label of ours on alerts"),
    pytest.param("objective: 95%}", "objective: 95%, labels: {on-call: ml}}",
        "slos.yaml:8:99: slos[0].labels.on-call: 'on-call' is not a label name; use letters, digits and _, first a "
        "letter", id="a label of alerts that is not a label name"),
    pytest.param("slos:\n", "labels: [team]\nslos:\n",
        "slos.yaml:7:9: labels: expected a mapping, found a list; write names and values, such as {team: ml}",
        id="labels of alerts that are a list"),
    pytest.param("slos:\n", "group_by: [cluster]\nlabels: {cluster: eu}\nslos:\n",
        "slos.yaml:8:19: labels.cluster: 'cluster' is in group_by, so each alert has it from its targets; choose "
        "another name", id="a label that group_by adds"),
    pytest.param("slos:\n",
        "group_by: [cluster]\nalerting: {alerts: {LLMEngineDown: {labels: {cluster: eu}}}}\nslos:\n",
        "slos.yaml:8:55: alerting.alerts.LLMEngineDown.labels.cluster: 'cluster' is in group_by, so each alert has it "
        "from its targets; choose another name", id="a label of one alert that group_by adds"),
    pytest.param("slos:\n", "alerting: {severities: {page: sev 1}}\nslos:\n",
        "slos.yaml:7:31: alerting.severities.page: 'sev 1' is not a valid severity; use letters, digits, - and _",
        id="a severity with a space"),
    pytest.param("slos:\n", "alerting: {severities: {page: ticket}}\nslos:\n",
        "slos.yaml:7:24: alerting.severities: page and ticket need different values, and none is that of the Watchdog",
        id="one severity for pages and tickets"),
    pytest.param("slos:\n", "source: vllm\nslos:\n", "slos.yaml:7:9: source: 'vllm' is unknown; known: sidecar, engine",
        id="unknown source"),
    pytest.param("slos:\n", "engine: {version: latest}\nslos:\n",
        "slos.yaml:7:19: engine.version: 'latest' is not a vLLM release; write a version number, such as 0.25 or "
        "v0.25.1", id="no release of vLLM"),
    pytest.param("slos:\n", "trust_request_start: maybe\nslos:\n",
        "slos.yaml:7:22: trust_request_start: expected true or false, found 'maybe'", id="no boolean"),
]  # fmt: skip
"""A text in `MINIMAL`, its replacement, and the whole message."""


def engine_only(version: str) -> SloFile:
    """`ENGINE_ONLY` for a release of vLLM."""
    return loads(ENGINE_ONLY.replace("source: engine", f"source: engine\nengine: {{version: {version}}}"))
