"""The parts of every dashboard: uid, variables, annotations, and links to the other dashboards."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from alerts.links import Links
from alerts.plan import Plan
from dashboards.boards.annotations import annotations
from dashboards.grafana import layout
from dashboards.grafana.links import NO_LINKS
from dashboards.queries.variables import VARIABLES
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SloFile, Source

TAG = "vllm-slo"
"""The tag that Grafana uses for the links between the dashboards."""

_HIDDEN = model.VariableHide.HIDE_VARIABLE

_VARIABLES: dict[Source, dict[Label, Callable[[SloFile], layout.Variable]]] = {
    Source.SIDECAR: {
        Label.MODEL: lambda _: layout.label_variable(Label.MODEL, signals.IN_FLIGHT),
        Label.CLASS: lambda spec: layout.list_variable(Label.CLASS, _class_texts(spec)),
        Label.INSTANCE: lambda _: layout.label_variable(Label.INSTANCE, signals.SIDECAR_BUILD),
        # the only series of an engine that was never up
        Label.ENGINE: lambda _: layout.label_variable(Label.ENGINE, signals.ENGINE_UP, Label.INSTANCE),
    },
    # an instance is an engine; hidden are those that select nothing more
    Source.ENGINE: {
        Label.MODEL: lambda _: layout.label_variable(Label.MODEL, signals.ENGINE_RUNNING),
        Label.CLASS: lambda _: layout.label_variable(Label.CLASS, signals.SLO_EVENTS).hide(_HIDDEN),
        Label.INSTANCE: lambda _: layout.label_variable(Label.INSTANCE, signals.ENGINE_UP).label("Engine"),
        Label.ENGINE: lambda _: layout.label_variable(Label.ENGINE, signals.ENGINE_UP).hide(_HIDDEN),
    },
}
_TARGETS = {Source.SIDECAR: signals.SIDECAR_BUILD, Source.ENGINE: signals.ENGINE_UP}
"""A series of each target, whose labels are those of `group_by`."""


def _class_texts(spec: SloFile) -> dict[str, str]:
    titles = spec.class_titles
    return {name: f"{name}: {titles[name]}" if name in titles else name for name in spec.class_names}


def _data_source() -> dashboard.DatasourceVariable:
    """Grafana shows it in the menu of the dashboard, from 12.3 on: most installations have one."""
    variable = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    return variable.hide(model.VariableHide.IN_CONTROLS_MENU)


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. `uid` starts with `vllm-slo-` and never changes: alerts and bookmarks link to it."""

    uid: str
    title: str
    description: str
    rows: Callable[[Plan], tuple[layout.Row, ...]]
    own_variables: Callable[[SloFile], tuple[layout.Variable, ...]] = lambda _: ()
    """Variables that only this dashboard has, after those of every dashboard."""
    labels: tuple[Label, ...] = ()
    """Labels with a variable of `own_variables`, which all its queries follow."""
    shows_load_tests: bool = False
    shows_request_log: bool = False
    time_from: str = "now-1h"
    source: Source = Source.SIDECAR
    """The source of its series, whatever the rules of the SLO file read."""

    @property
    def file_name(self) -> str:
        return f"{self.uid.removeprefix('vllm-')}.json"

    def build(self, spec: SloFile) -> model.Dashboard:
        """The dashboard for one SLO file, which determines thresholds and colours of classes."""
        plan = Plan.of(replace(spec, source=self.source))
        links = dashboard.DashboardLink("Dashboards").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
        links.keep_time(True).include_vars(True)
        frame = (
            dashboard.Dashboard(self.title)
            .uid(self.uid)
            .description(f"{self.description} Made by: vllm-slo dashboards render")
            .tags([TAG])
            .timezone("browser")
            .time(self.time_from, "now")
            # the rules are evaluated once a minute, and each refresh queries the whole fleet
            .refresh("1m")
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .readonly()
            .link(links)
            .with_variable(_data_source())
        )
        targets = (layout.label_variable(label, _TARGETS[self.source]) for label in spec.group_by)
        every = _VARIABLES[self.source]
        for variable in (*targets, *(every[label](plan.spec) for label in VARIABLES), *self.own_variables(plan.spec)):
            frame.with_variable(variable)
        for annotation in annotations(plan.spec, load_tests=self.shows_load_tests):
            frame.annotation(annotation)
        return layout.arrange(frame, self.rows(plan), spell_duration(spec.scrape_interval), spec.class_titles)

    def render(self, spec: SloFile, links: Links = NO_LINKS, log_selector: str = "") -> str:
        """The dashboard as JSON; deterministic for an SLO file. `log_selector` selects the request log in Loki."""
        selector = log_selector if self.shows_request_log else ""
        return layout.to_json(self.build(spec), spec.group_by, links, selector, (*VARIABLES, *self.labels))
