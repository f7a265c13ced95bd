"""The table that leads from an engine to its worst requests: their command, their traces, and the runbook."""

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.alert_names import AlertName
from alerts.plan import Plan
from alerts.promql_text import max_by
from dashboards import style, tables
from dashboards.data_links import to_runbook, to_traces
from dashboards.label_selectors import select_sidecar
from dashboards.style import describe
from dashboards.tables import ValueColumn
from exporters import signals
from exporters.quantities import spell_duration
from exporters.signals import Label
from exporters.slos import SloFile

_COMMAND, _RUNBOOK = "command", "runbook"
_NONE = "no bad event in the time range"
_LIST = (
    "vllm-slo requests requests.jsonl --class $1=bad --sort e2e_ms --limit 10 "
    "--since ${__from:date:seconds} --until ${__to:date:seconds}"
)
"""`$1` is the class, the flag of the SLO, and the SLO."""


def worst_requests(spec: SloFile) -> table.Panel:
    text = describe(
        "A row per SLO and class with bad events at the sidecars shown, the worst first: the largest share of bad "
        f"events in {spell_duration(Plan.of(spec).outlier_window)} of the time range. Command lists the ten slowest of "
        "these requests; run it on the request log of that sidecar. A click on the class opens their traces, if the "
        "dashboards were rendered with --traces-url. Good: no row. From the recording rules.",
        may_be_empty=f"there is {_NONE}",
    )
    panel = style.table_panel("Worst requests", text, units.Short, 24, 6)
    tables.if_empty(panel, _NONE).sort_by(
        [
            common.TableSortByFieldState().display_name("Bad").desc(True),
            common.TableSortByFieldState().display_name("SLO").desc(False),
            common.TableSortByFieldState().display_name("Class").desc(False),
        ]
    )
    tables.join_queries(
        panel,
        {Label.SLO: "SLO", Label.CLASS: "Class", Label.INSTANCE: "Sidecar"},
        [ValueColumn("Bad", _shares(), units.PercentUnit, decimals=0, width=60)],
        texts={_RUNBOOK: "Runbook", _COMMAND: "Command"},
    )
    tables.link_cells(panel, Label.CLASS, "Ten slowest requests", to_traces(Label.CLASS, Label.SLO))
    tables.link_cells(panel, _RUNBOOK, "Runbook", to_runbook(_RUNBOOK))
    # Grafana adds a symbol that shows the whole text, and copies it
    return panel.override_by_name(_COMMAND, [model.DynamicConfigValue("custom.inspect", True)])


def _shares() -> str:
    """The largest share of bad events of each SLO and class, with the texts of a row as labels."""
    share = f"max_over_time({select_sidecar(signals.INSTANCE_ERROR_RATIO)}[$__range:$__rate_interval])"
    rows = f"{max_by(share, (Label.SLO, Label.CLASS, Label.INSTANCE))} > 0"
    flags = f'label_join({rows}, "{_COMMAND}", " --slo ", "{Label.CLASS}", "{Label.SLO}")'
    command = f'label_replace({flags}, "{_COMMAND}", "{_LIST}", "{_COMMAND}", "(.*)")'
    return f'label_replace({command}, "{_RUNBOOK}", "{AlertName.BURN}", "", "")'
