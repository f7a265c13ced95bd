"""A dashboard with one panel of each kind, and a fake Prometheus with its series."""

import math
from collections.abc import Callable
from typing import Any

RED, GREEN, BLUE = "#D55E00", "#009E73", "#0072B2"

# 2026-01-31 12:00:00 UTC, and five minutes earlier
END = 1769860800
START = END - 300
WHEN = ("--since", str(START), "--until", str(END), "--scrape-interval", "1s")

Value = float | Callable[[float], float]
"""A constant, or a function of the time."""

SERIES: dict[str, list[tuple[dict[str, str], Value]]] = {
    "requests": [({"class": "siso"}, lambda at: 4 + at % 2), ({"class": "lilo"}, 1.5)],
    'requests{class=~"siso"}': [({"class": "siso"}, 4)],
    'requests{class=~"lilo"}': [({"class": "lilo"}, 1.5)],
    "burn": [({"window": "5m"}, 20), ({"window": "1h"}, 0.5)],
    "budget": [({"slo": "ttft"}, 0.75), ({"slo": "itl"}, -0.25)],
    "up": [({"engine": "a"}, 1), ({"engine": "b"}, 0)],
    "wait": [({"engine": "a"}, 0.25), ({"engine": "b"}, math.inf)],
    "buckets": [({"le": "0.1"}, 1), ({"le": "0.5"}, 4), ({"le": "+Inf"}, 4)],
    "nothing": [],
    "undefined": [({}, math.nan)],
    "changes * 1000": [({"setting": "seed", "new": "2"}, (END - 100) * 1000)],
    "firing": [({"alertname": "Burn"}, lambda at: 1 if END - 200 <= at <= END - 150 else math.nan)],
}


def answer(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
    """The response of a Prometheus with `SERIES`; any other query is rejected."""
    if path.startswith("/api/v1/label/"):
        return 200, {"status": "success", "data": ["lilo", "siso"]}
    if parameters["query"] not in SERIES:
        return 400, {"status": "error", "error": f"unknown function {parameters['query']}"}
    return result_of(path, parameters, SERIES[parameters["query"]])


def anything(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
    """The response of a Prometheus that has two series for every query."""
    if path.startswith("/api/v1/label/"):
        return answer(path, parameters)
    labels = [{"class": name, "engine": f"{name}:8000", "setting": "seed", "value": name} for name in ("lilo", "siso")]
    if "_bucket" in parameters["query"]:
        labels = [{**labels[0], "le": le} for le in ("0.1", "0.5", "+Inf")]
    return result_of(path, parameters, [(each, 0.5) for each in labels])


def result_of(path: str, parameters: dict[str, str], series: list[tuple[dict[str, str], Value]]) -> tuple[int, Any]:
    """The response with constants, or functions of the time, by labels."""
    if path == "/api/v1/query":
        at = float(parameters["time"])
        result = [{"metric": labels, "value": [at, _text(value, at)]} for labels, value in series]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}
    start, end, step = (float(parameters[name]) for name in ("start", "end", "step"))
    times = [start + number * step for number in range(int((end - start) / step) + 1)]
    matrix = [{"metric": labels, "values": [[at, _text(value, at)] for at in times]} for labels, value in series]
    return 200, {"status": "success", "data": {"resultType": "matrix", "result": matrix}}


def _text(value: Value, at: float) -> str:
    """A value in the notation of Prometheus."""
    number = value(at) if callable(value) else value
    return "NaN" if math.isnan(number) else "+Inf" if math.isinf(number) else str(number)


def panel(kind: str, title: str, *queries: str, legend: str = "", **more: Any) -> dict[str, Any]:
    """A panel of half the width; instant queries, except for time series and heatmaps."""
    over_time = kind in {"timeseries", "heatmap"}
    style = {"table": "table", "heatmap": "heatmap"}.get(kind, "time_series")
    common = {"legendFormat": legend, "instant": not over_time, "range": over_time, "format": style}
    targets = [{"refId": ref, "expr": query, **common} for ref, query in zip("ABCDEF", queries, strict=False)]
    place = {"x": 0, "y": 0, "w": 12, "h": 8}
    description = f"What of {title}?"
    return {"type": kind, "title": title, "gridPos": place, "targets": targets, "description": description, **more}


def config(*overrides: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    return {"defaults": defaults, "overrides": list(overrides)}


def override(matcher: str, options: Any, **properties: Any) -> dict[str, Any]:
    properties_json = [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()]
    return {"matcher": {"id": matcher, "options": options}, "properties": properties_json}


def fixed(colour: str) -> dict[str, str]:
    return {"mode": "fixed", "fixedColor": colour}


def thresholds(base: str, *steps: tuple[float, str]) -> dict[str, Any]:
    return {
        "mode": "absolute",
        "steps": [{"value": None, "color": base}, *({"value": value, "color": colour} for value, colour in steps)],
    }


LEGEND = {"showLegend": True, "displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}

PANELS = (
    panel(
        "timeseries",
        "Requests",
        "requests",
        legend="{{class}}",
        options={"legend": LEGEND, "tooltip": {"sort": "desc"}},
        fieldConfig=config(
            override("byRegexp", "/^siso\\b/", color=fixed(BLUE)),
            unit="reqps",
            min=0,
            color={"mode": "continuous-BlPu", "seriesBy": "max"},
            custom={"stacking": {"mode": "normal"}, "fillOpacity": 40, "thresholdsStyle": {"mode": "dashed"}},
            thresholds=thresholds("transparent", (5, RED)),
        ),
    ),
    panel(
        "timeseries",
        "Burn rate",
        "burn",
        legend="{{window}}",
        options={"legend": {**LEGEND, "placement": "right", "sortBy": "Last *", "sortDesc": False}},
        fieldConfig=config(custom={"scaleDistribution": {"type": "symlog", "log": 10, "linearThreshold": 1}}),
    ),
    panel(
        "stat",
        "Engines",
        "up",
        legend="{{engine}}",
        options={"textMode": "value_and_name"},
        fieldConfig=config(
            mappings=[{"type": "value", "options": {"0": {"text": "down"}, "1": {"text": "up"}}}],
            thresholds=thresholds(RED, (1, GREEN)),
        ),
    ),
    panel(
        "bargauge",
        "Budget left",
        "budget",
        legend="{{slo}}",
        options={"orientation": "horizontal"},
        fieldConfig=config(unit="percentunit", min=0, max=1, decimals=1, thresholds=thresholds(RED, (0.25, GREEN))),
    ),
    panel(
        "table",
        "Fleet",
        "up",
        "wait",
        transformations=[
            {"id": "merge"},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "indexByName": {"engine": 0, "Value #B": 1}},
            },
        ],
        options={"sortBy": [{"displayName": "Wait", "desc": True}]},
        fieldConfig=config(
            override("byName", "Value #B", displayName="Wait", unit="s"),
            override("byName", "engine", links=[{"url": "/d/other?var-engine=${__data.fields.engine}"}]),
        ),
    ),
    panel(
        "heatmap",
        "Spread",
        "buckets",
        legend="{{le}}",
        options={"yAxis": {"unit": "s"}, "color": {"scheme": "Cividis"}},
    ),
    panel("text", "Note", options={"mode": "markdown", "content": "**Read** this <script>throw 1</script>"}),
    panel("geomap", "Map", "up"),
    panel("stat", "Nobody", "nothing", fieldConfig=config(noValue="no traffic")),
    panel("timeseries", "Undefined", "undefined", fieldConfig=config(noValue="no traffic")),
    panel("timeseries", "Broken", "sum("),
    panel("timeseries", "Of $class", 'requests{class=~"$class"}', legend="{{class}}", repeat="class", maxPerRow=2),
)


def dashboard(*panels: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Panels two a line under one row, a variable `class`, two annotations."""
    placed_panels = [
        {**each, "id": number + 1, "gridPos": {**each["gridPos"], "x": 12 * (number % 2), "y": 1 + 8 * (number // 2)}}
        for number, each in enumerate(panels)
    ]
    row = {"type": "row", "title": "Is $class well?", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}, "panels": []}
    return {
        "title": "Made",
        "uid": "made",
        "templating": {
            "list": [
                {"type": "datasource", "name": "datasource", "query": "prometheus"},
                {
                    "type": "query",
                    "name": "class",
                    "label": "Class",
                    "query": {"query": "label_values(requests, class)"},
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": ["All"], "value": ["$__all"]},
                },
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "Config changes",
                    "expr": "changes * 1000",
                    "titleFormat": "{{setting}} → {{new}}",
                    "iconColor": RED,
                    "useValueForTime": True,
                },
                {"name": "Alerts", "expr": "firing", "titleFormat": "{{alertname}}", "iconColor": RED},
            ]
        },
        "panels": [row, *placed_panels],
        **more,
    }
