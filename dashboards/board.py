"""What every dashboard has: its uid, variables, annotations, and a link to the others."""

from collections.abc import Callable
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from dashboards import layout
from dashboards.annotation_queries import annotations
from exporters import signals
from exporters.signals import Label
from exporters.slos import SloFile

TAG = "vllm-slo"
"""The tag by which the dashboards link to each other."""

_VARIABLES: dict[Label, Callable[[], dashboard.QueryVariable]] = {
    Label.MODEL: lambda: layout.label_variable(Label.MODEL, signals.IN_FLIGHT),
    Label.CLASS: lambda: layout.label_variable(Label.CLASS, signals.IN_FLIGHT, Label.MODEL),
    Label.TENANT: lambda: layout.label_variable(Label.TENANT, signals.GOODPUT_EVENTS, Label.MODEL, Label.CLASS),
    Label.INSTANCE: lambda: layout.label_variable(Label.INSTANCE, signals.SIDECAR_BUILD),
    # an engine that was never up has no other series
    Label.ENGINE: lambda: layout.label_variable(Label.ENGINE, signals.ENGINE_UP, Label.INSTANCE),
    Label.WINDOW: lambda: layout.label_variable(Label.WINDOW, signals.SLO_BURN_RATE, Label.MODEL, Label.CLASS),
}


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. `uid` starts with `vllm-slo-` and never changes: alerts and bookmarks link to it."""

    uid: str
    title: str
    description: str
    variables: tuple[Label, ...]
    """Those of `_VARIABLES` that its queries use; a variable refers to earlier ones, so `model` comes first."""
    rows: Callable[[SloFile], tuple[layout.Row, ...]]
    own_variables: tuple[Callable[[], layout.Variable], ...] = ()
    """Variables of this dashboard only, after the others."""
    time_from: str = "now-1h"
    refresh: str = "10s"

    @property
    def file_name(self) -> str:
        return f"{self.uid.removeprefix('vllm-')}.json"

    def build(self, spec: SloFile) -> model.Dashboard:
        """The dashboard for one SLO file, from which thresholds and colours of classes come."""
        frame = (
            dashboard.Dashboard(self.title)
            .uid(self.uid)
            .description(f"{self.description} Made by: vllm-slo dashboards render")
            .tags([TAG])
            .timezone("browser")
            .time(self.time_from, "now")
            .refresh(self.refresh)
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .readonly()
            .link(_dashboards_link())
            .with_variable(layout.datasource_variable())
        )
        for variable in (*(_VARIABLES[label] for label in self.variables), *self.own_variables):
            frame.with_variable(variable())
        for annotation in annotations(spec):
            frame.annotation(annotation)
        return layout.arrange(frame, self.rows(spec))

    def render(self, spec: SloFile) -> str:
        """The dashboard's file: the same SLO file gives the same bytes."""
        return layout.to_json(self.build(spec))


def _dashboards_link() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Dashboards")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .keep_time(True)
        .include_vars(True)
    )
