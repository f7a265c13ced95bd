"""The dashboard "Workload": request sizes, failures by size, classes, repeated prompts and tenants."""

from alerts.links import DashboardUid
from alerts.plan import Plan
from dashboards.boards.board import Board
from dashboards.grafana.layout import Row
from dashboards.panels import cost, failure_lengths, mix, routes, traffic


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row("Request sizes", (mix.sizes(), mix.failures_by_size())),
        Row("Failures by length", (failure_lengths.failure_ratio_by_length().span(24),)),
        Row(
            "Lengths over time",
            (mix.prompt_heatmap().span(12), mix.completion_heatmap().span(12)),
            is_collapsed=True,
        ),
        Row("Load by class", (mix.class_mix(plan), mix.prompt_tokens(spec), traffic.tokens(spec))),
        Row("Routes", (routes.requests_by_route(), routes.outcomes_by_route())),
        Row("Cost", (cost.cost_per_million(), cost.cost_in_range())),
        Row("Reasoning", (mix.reasoning_share(spec), mix.reasoning_tokens(spec)), is_collapsed=True),
        Row(
            "Response cache",
            (
                mix.repeats_in_range(),
                mix.unique_prompts(),
                mix.repeats(spec),
                mix.tokens_saved(spec),
            ),
            is_collapsed=True,
        ),
        Row("Structured output checks", (mix.structured_output(), mix.valid_output()), is_collapsed=True),
        Row(
            "Tenants",
            (mix.requests_by_tenant(), mix.tokens_by_tenant(), mix.goodput_by_tenant(spec)),
        ),
    )


BOARD = Board(
    uid=DashboardUid.WORKLOAD,
    title="Workload",
    description="Lengths and outcomes, class mix, repeats and tenants.",
    rows=rows,
)
