"""The log lines of bad requests from a Loki to which the request log is shipped; only with `render --loki`."""

import json
from typing import Any

from grafana_foundation_sdk.builders import dashboard, logs, loki
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, units

from alerts.links import panel_id
from exporters.text.errors import UsageError

TITLE = "Log lines of bad requests"
_SOURCE = common.DataSourceRef(type_val="loki", uid="${loki}")
_HEIGHT = 12
_TEXT = (
    "The last 100 lines of the request log whose requests missed an SLO, of the class selected. A click on a line "
    "shows all its fields. Good: no line. From the request log in Loki. May be empty: no request missed an SLO."
)


def parse_selector(text: str) -> str:
    """The selector of the streams with the request log, such as `{app="vllm-sidecar"}`.

    Raises:
        UsageError: it is not in braces.
    """
    if not (text.startswith("{") and text.endswith("}") and "=" in text):
        raise UsageError(f'--loki: {text!r} is not a selector of log streams, such as {{app="vllm-sidecar"}}')
    return text


def add_log_lines(page: dict[str, Any], selector: str) -> None:
    """Add a variable for the Loki, and a row at the end, whose query no variable of Prometheus series changes."""
    bad = '|~ `"slo": ?\\{[^}]*: ?"bad"` | json class="class" | class=~"$class"'
    panel = (
        logs.Panel()
        .title(TITLE)
        .description(_TEXT)
        .datasource(_SOURCE)
        .unit(units.Short)
        .sort_order(common.LogsSortOrder.DESCENDING)
        .show_time(True)
        .wrap_log_message(True)
        .enable_log_details(True)
        .with_target(
            loki.Dataquery()
            .expr(f"{selector} {bad}")
            .query_type("range")
            .max_lines(100)
            .datasource(_SOURCE)
            .ref_id("A")
        )
    )
    row = dashboard.Row("Request log")
    variable = dashboard.DatasourceVariable("loki").label("Log data source").type("loki")
    panel_json, row_json, variable_json = (
        json.loads(json.dumps(each.build(), cls=JSONEncoder)) for each in (panel, row, variable)
    )
    below = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in page["panels"])
    row_json |= {"id": panel_id("Request log"), "gridPos": {"h": 1, "w": 24, "x": 0, "y": below}}
    panel_json |= {"id": panel_id(TITLE), "gridPos": {"h": _HEIGHT, "w": 24, "x": 0, "y": below + 1}}
    page["panels"] += [row_json, panel_json]
    page["templating"]["list"].append(variable_json)
