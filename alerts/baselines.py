"""Recording rules for the baselines of the last week, with which alerts compare a class or a model."""

from alerts.promql import select
from alerts.recording_rules import step_count
from alerts.recording_windows import STEP, Windows, windows
from alerts.rule_groups import Recording, RuleGroup
from exporters.quantities import number, spell_duration
from exporters.signals import (
    CACHE_WEEKLY_RATIO,
    COMPLETION_TOKENS,
    ENGINE_CACHE_HITS,
    ENGINE_CACHE_HITS_IN,
    ENGINE_PROMPT_TOKENS,
    ENGINE_PROMPT_TOKENS_IN,
    TOKENS_IN,
    TOKENS_MEDIAN,
    Label,
    Recorded,
    Signal,
)
from exporters.slos import SloFile


def baseline_groups(spec: SloFile) -> tuple[RuleGroup, ...]:
    """Token counts of each step, and the baselines of a week of steps, recorded once in a dozen steps."""
    lengths = windows(spec)

    def busy_steps(source: Signal, target: Recorded) -> Recording:
        """Only steps with tokens, so that quiet nights do not pull a median to zero."""
        step = step_count(source, target, spec)
        return Recording(step.series, f"{step.expr} > 0", step.labels)

    tokens, prompt = _last_week(TOKENS_IN, lengths), _last_week(ENGINE_PROMPT_TOKENS_IN, lengths)
    return (
        RuleGroup(
            "vllm-slo-work",
            lengths.step,
            (
                busy_steps(COMPLETION_TOKENS, TOKENS_IN),
                busy_steps(ENGINE_PROMPT_TOKENS, ENGINE_PROMPT_TOKENS_IN),
                step_count(ENGINE_CACHE_HITS, ENGINE_CACHE_HITS_IN, spec),
            ),
        ),
        RuleGroup(
            "vllm-slo-baselines",
            lengths.dozen,
            (
                Recording(
                    TOKENS_MEDIAN,
                    f"max without (window) (quantile_over_time(0.5, {tokens}))\n{_if_day_known(TOKENS_IN, lengths)}",
                ),
                Recording(
                    CACHE_WEEKLY_RATIO,
                    f"sum by (model) (sum_over_time({_last_week(ENGINE_CACHE_HITS_IN, lengths)}))\n"
                    f"/ sum by (model) (sum_over_time({prompt}))\n"
                    f"{_if_day_known(ENGINE_PROMPT_TOKENS_IN, lengths)}",
                ),
            ),
        ),
    )


def baseline(series: Recorded, spec: SloFile) -> str:
    """The last recorded baseline; it is older than the lookback of Prometheus."""
    return f"last_over_time({series.name}[{spell_duration(2 * windows(spec).dozen)}])"


def _last_week(series: Recorded, lengths: Windows) -> str:
    return f"{select(series, {Label.WINDOW: STEP})}[{spell_duration(lengths.week)}]"


def _if_day_known(series: Recorded, lengths: Windows) -> str:
    """Requires at least a day of busy steps for a baseline."""
    labels = ", ".join(label for label in series.labels if label != Label.WINDOW)
    return f"and on ({labels}) count_over_time({_last_week(series, lengths)}) >= {number(lengths.day / lengths.step)}"
