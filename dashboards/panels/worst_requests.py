"""The table that leads from an engine to its worst requests: their command, their traces, and the runbook."""

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.plan import Plan
from alerts.promql.build import call, max_by, ranged
from alerts.promql.expression import Expression
from dashboards.grafana import style, tables
from dashboards.grafana.links import to_runbook, to_traces
from dashboards.grafana.tables import ValueColumn
from dashboards.queries.labels import join_labels, with_label
from dashboards.queries.rates import RANGE, RATE
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label

_COMMAND, _RUNBOOK = "command", "runbook"
_LIST = (
    "vllm-slo requests --request-log requests.jsonl --class $1=bad --sort e2e_ms --limit 10 "
    "--since ${__from:date:seconds} --until ${__to:date:seconds}"
)
"""`$1` is the class, the flag of the SLO, and the SLO."""


def worst_requests(plan: Plan) -> table.Panel:
    text = (
        "A row per SLO and class with bad events at the sidecars shown, the worst first: the largest share of bad "
        f"events in {spell_duration(plan.outlier_window)} of the time range. Command lists the ten slowest of these "
        "requests; run it on the request log of that sidecar. A click on the class opens their traces, if the "
        "dashboards were rendered with --traces-url. Good: no row. From the recording rules."
    )
    panel = style.table_panel(
        "Worst requests", text, units.Short, 24, 6, may_be_empty="there is no bad event in the time range"
    )
    tables.sort_rows(panel, "-Bad in range", "SLO", "Class")
    tables.join_queries(
        panel,
        {Label.SLO: "SLO", Label.CLASS: "Class", Label.INSTANCE: "Sidecar"},
        [ValueColumn("Bad in range", _shares(), units.PercentUnit, decimals=0, width=105)],
        texts={_RUNBOOK: "Runbook", _COMMAND: "Command"},
    )
    tables.link_cells(panel, Label.CLASS, "Ten slowest requests", to_traces(Label.CLASS, Label.SLO))
    tables.link_cells(panel, _RUNBOOK, "Runbook", to_runbook(_RUNBOOK))
    # Grafana adds a symbol that shows the whole text, and copies it
    return panel.override_by_name(_COMMAND, [model.DynamicConfigValue("custom.inspect", True)])


def _shares() -> Expression:
    """The largest share of bad events of each SLO and class, with the texts of a row as labels."""
    share = call("max_over_time", ranged(signals.INSTANCE_ERROR_RATIO, RANGE, RATE))
    rows = max_by(share, (Label.SLO, Label.CLASS, Label.INSTANCE)) > 0
    flags = join_labels(rows, _COMMAND, " --slo ", Label.CLASS, Label.SLO)
    return with_label(call("label_replace", flags, _COMMAND, _LIST, _COMMAND, "(.*)"), _RUNBOOK, AlertName.BURN)
