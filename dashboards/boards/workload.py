"""The dashboard "Workload": what is asked, by whom, what of it fails, and what is asked again."""

from dashboards.board import Board
from dashboards.page import Row
from dashboards.panels import traffic, workload
from exporters.signals import Label
from exporters.slos import SloFile


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row("How long is what is asked, and what of it fails?", (workload.sizes(), workload.failures_by_size())),
        Row("Do lengths change?", (workload.prompt_heat(), workload.completion_heat())),
        Row(
            "Which classes make the load?",
            (workload.class_mix(spec), workload.prompt_tokens(spec), traffic.tokens(spec)),
        ),
        Row(
            "What would a response cache save?",
            (
                workload.repeats_in_range(),
                workload.different_prompts(),
                workload.repeats(spec),
                workload.tokens_saved(spec),
            ),
        ),
        Row(
            "Who asks?",
            (workload.requests_by_tenant(), workload.tokens_by_tenant(), workload.goodput_by_tenant(spec)),
        ),
    )


BOARD = Board(
    uid="vllm-slo-workload",
    title="Workload",
    description="Lengths and outcomes, class mix, repeats and tenants.",
    variables=(Label.MODEL, Label.CLASS),
    rows=rows,
)
