"""The dashboard "Workload": request sizes, failures by size, classes, repeated prompts and tenants."""

from alerts.links import DashboardUid
from dashboards.board import Board
from dashboards.layout import Row
from dashboards.panels import request_mix, traffic
from exporters.signals import Label
from exporters.slos import SloFile


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row("How long is what is asked, and what of it fails?", (request_mix.sizes(), request_mix.failures_by_size())),
        Row("Do lengths change?", (request_mix.prompt_heatmap(), request_mix.completion_heatmap())),
        Row(
            "Which classes make the load?",
            (request_mix.class_mix(spec), request_mix.prompt_tokens(spec), traffic.tokens(spec)),
        ),
        Row(
            "How much of the output is reasoning?",
            (request_mix.reasoning_share(spec), request_mix.reasoning_tokens(spec)),
        ),
        Row(
            "What would a response cache save?",
            (
                request_mix.repeats_in_range(),
                request_mix.unique_prompts(),
                request_mix.repeats(spec),
                request_mix.tokens_saved(spec),
            ),
        ),
        Row("Is structured output valid?", (request_mix.structured_output(), request_mix.valid_output())),
        Row(
            "Who asks?",
            (request_mix.requests_by_tenant(), request_mix.tokens_by_tenant(), request_mix.goodput_by_tenant(spec)),
        ),
    )


BOARD = Board(
    uid=DashboardUid.WORKLOAD,
    title="Workload",
    description="Lengths and outcomes, class mix, repeats and tenants.",
    variables=(Label.MODEL, Label.CLASS),
    rows=rows,
)
