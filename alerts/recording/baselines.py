"""Recording rules that read a week or more once in a dozen of steps: baselines for alerts, and the number of dozens."""

from alerts.plan import STEP, Plan
from alerts.promql.build import call, in_window, on, over, ranged, sum_by
from alerts.promql.expression import Expression
from alerts.recording.steps import increase_of_steps, step_count, target_labels
from alerts.recording.windows import dozens_recording, largest_window
from alerts.rules.groups import Recording, RuleGroup, windowed
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Recorded, Signal


def baseline_groups(plan: Plan) -> tuple[RuleGroup, ...]:
    """Token counts of each step, and the baselines of a week of steps, recorded once in a dozen steps."""

    def busy_steps(source: Signal, target: Recorded) -> Recording:
        """Only steps with tokens, so that quiet nights do not lower the median to zero."""
        return windowed(target, STEP, increase_of_steps(1, source, target, plan) > 0)

    hits, prompt = (
        sum_by(over("sum_over_time", in_window(series, STEP), plan.week), [Label.MODEL])
        for series in (signals.ENGINE_CACHE_HITS_IN, signals.ENGINE_PROMPT_TOKENS_IN)
    )
    tokens = (busy_steps(signals.COMPLETION_TOKENS, signals.TOKENS_IN),) if plan.has_sidecar else ()
    return (
        RuleGroup(
            "vllm-slo-work",
            plan.step,
            (
                *tokens,
                busy_steps(signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_PROMPT_TOKENS_IN),
                step_count(signals.ENGINE_CACHE_HITS, signals.ENGINE_CACHE_HITS_IN, plan),
            ),
        ),
        RuleGroup(
            "vllm-slo-baselines",
            plan.dozen,
            (
                *((_median_tokens(plan),) if plan.has_sidecar else ()),
                Recording(
                    signals.CACHE_WEEKLY_RATIO,
                    _if_day_known(hits / prompt, signals.ENGINE_PROMPT_TOKENS_IN, plan),
                ),
                dozens_recording(plan),
            ),
        ),
    )


def _median_tokens(plan: Plan) -> Recording:
    median = call("quantile_over_time", 0.5, ranged(in_window(signals.TOKENS_IN, STEP), plan.week))
    return Recording(signals.TOKENS_MEDIAN, _if_day_known(largest_window(median), signals.TOKENS_IN, plan))


def baseline(series: Recorded, plan: Plan) -> Expression:
    """The last recorded baseline; it is older than the lookback of Prometheus."""
    return over("last_over_time", series, 2 * plan.dozen)


def _if_day_known(expression: Expression, series: Recorded, plan: Plan) -> Expression:
    """Requires at least a day of busy steps for a baseline."""
    known = over("count_over_time", in_window(series, STEP), plan.week) >= plan.day / plan.step
    return expression.and_(known, on(*target_labels(series)))
