"""The dashboard "Workload": request sizes, failures by size, classes, repeated prompts and tenants."""

from alerts.links import DashboardUid
from alerts.plan import Plan
from dashboards.board import Board
from dashboards.layout import Row
from dashboards.panels import cost, endpoints, failure_lengths, request_mix, traffic


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row("Request sizes", (request_mix.sizes(), request_mix.failures_by_size())),
        Row("Failures by length", (failure_lengths.failure_ratio_by_length().span(24),)),
        Row(
            "Lengths over time",
            (request_mix.prompt_heatmap().span(12), request_mix.completion_heatmap().span(12)),
            is_collapsed=True,
        ),
        Row("Load by class", (request_mix.class_mix(plan), request_mix.prompt_tokens(spec), traffic.tokens(spec))),
        Row("Endpoints", (endpoints.requests_by_endpoint(), endpoints.outcomes_by_endpoint())),
        Row("Cost", (cost.cost_per_million(), cost.cost_in_range())),
        Row("Reasoning", (request_mix.reasoning_share(spec), request_mix.reasoning_tokens(spec)), is_collapsed=True),
        Row(
            "Response cache",
            (
                request_mix.repeats_in_range(),
                request_mix.unique_prompts(),
                request_mix.repeats(spec),
                request_mix.tokens_saved(spec),
            ),
            is_collapsed=True,
        ),
        Row(
            "Structured output checks", (request_mix.structured_output(), request_mix.valid_output()), is_collapsed=True
        ),
        Row(
            "Tenants",
            (request_mix.requests_by_tenant(), request_mix.tokens_by_tenant(), request_mix.goodput_by_tenant(spec)),
        ),
    )


BOARD = Board(
    uid=DashboardUid.WORKLOAD,
    title="Workload",
    description="Lengths and outcomes, class mix, repeats and tenants.",
    rows=rows,
)
