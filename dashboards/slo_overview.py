"""The dashboard "SLO overview": is every class of request served as promised, and if not, since when and why."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from dashboards import engine, page, promises, traffic, truth
from exporters import signals
from exporters.signals import Label
from exporters.slos import SloFile
from exporters.yamlfile import spell_duration

UID = "vllm-slo-overview"
TITLE = "SLO overview"


def build(spec: SloFile) -> model.Dashboard:
    """The dashboard for one SLO file, from which the thresholds come."""
    frame = (
        dashboard.Dashboard(TITLE)
        .uid(UID)
        .description("Error budgets, burn rates and goodput per class. Made by: vllm-slo dashboards render")
        .tags(["vllm", "slo"])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("10s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(page.choose_datasource())
        .with_variable(page.choose(Label.MODEL, signals.IN_FLIGHT))
        .with_variable(page.choose(Label.CLASS, signals.IN_FLIGHT))
        .with_variable(page.choose(Label.WINDOW, signals.SLO_BURN_RATE))
        .annotation(flips(spec))
    )
    rows = (
        page.Row(
            "Are users served as promised?",
            (
                promises.budget_left(),
                promises.goodput_now(spec),
                traffic.in_flight_now(),
                traffic.oldest_wait_now(spec),
            ),
        ),
        page.Row(
            "How fast is the budget spent, and who has been told?",
            (promises.burn_rate(spec), promises.firing_alerts()),
        ),
        page.Row("Useful, or only busy?", (promises.goodput(spec), traffic.tokens(), traffic.offered())),
        page.Row("What becomes of requests?", (traffic.outcomes(), traffic.in_flight())),
        page.Row(
            "How long do users wait for the first token?",
            (traffic.time_to_first_token(spec), traffic.oldest_wait(spec)),
        ),
        page.Row("What does the engine do?", (engine.batch(), engine.kv_cache(), engine.prefix_cache())),
        page.Row("In figures, over the time range shown", truth.truth_panels()),
    )
    return page.arrange(frame, rows)


def render(spec: SloFile) -> str:
    """The dashboard's file."""
    return page.to_json(build(spec))


def flip_query() -> str:
    """When settings of the engine changed, in unix milliseconds: the time of each flip annotation."""
    return f"{signals.ENGINE_CONFIG_CHANGE.name} * 1000"


def flips(spec: SloFile) -> dashboard.AnnotationQuery:
    return page.events(
        "Config flips",
        flip_query(),
        title="{{setting}}: {{old}} → {{new}}",
        text="on {{engine}}",
        tags=(Label.SETTING, Label.ENGINE),
        step=spell_duration(spec.scrape_interval),
    )
