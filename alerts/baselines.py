"""Recording rules that read a week or more once in a dozen of steps: baselines for alerts, and the number of dozens."""

from alerts.promql_text import in_window
from alerts.recording_rules import dozens_recording
from alerts.recording_windows import STEP, Windows, windows
from alerts.rule_groups import Recording, RuleGroup
from alerts.step_counts import step_count
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label, Recorded, Signal
from exporters.slos import SloFile


def baseline_groups(spec: SloFile) -> tuple[RuleGroup, ...]:
    """Token counts of each step, and the baselines of a week of steps, recorded once in a dozen steps."""
    lengths = windows(spec)

    def busy_steps(source: Signal, target: Recorded) -> Recording:
        """Only steps with tokens, so that quiet nights do not lower the median to zero."""
        step = step_count(source, target, spec)
        return Recording(step.series, f"{step.expr} > 0", step.labels)

    tokens, prompt = _last_week(signals.TOKENS_IN, lengths), _last_week(signals.ENGINE_PROMPT_TOKENS_IN, lengths)
    return (
        RuleGroup(
            "vllm-slo-work",
            lengths.step,
            (
                busy_steps(signals.COMPLETION_TOKENS, signals.TOKENS_IN),
                busy_steps(signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_PROMPT_TOKENS_IN),
                step_count(signals.ENGINE_CACHE_HITS, signals.ENGINE_CACHE_HITS_IN, spec),
            ),
        ),
        RuleGroup(
            "vllm-slo-baselines",
            lengths.dozen,
            (
                Recording(
                    signals.TOKENS_MEDIAN,
                    f"max without (window) (quantile_over_time(0.5, {tokens}))\n"
                    f"{_if_day_known(signals.TOKENS_IN, lengths)}",
                ),
                Recording(
                    signals.CACHE_WEEKLY_RATIO,
                    f"sum by (model) (sum_over_time({_last_week(signals.ENGINE_CACHE_HITS_IN, lengths)}))\n"
                    f"/ sum by (model) (sum_over_time({prompt}))\n"
                    f"{_if_day_known(signals.ENGINE_PROMPT_TOKENS_IN, lengths)}",
                ),
                dozens_recording(spec),
            ),
        ),
    )


def baseline(series: Recorded, spec: SloFile) -> str:
    """The last recorded baseline; it is older than the lookback of Prometheus."""
    return f"last_over_time({series.name}[{spell_duration(2 * windows(spec).dozen)}])"


def _last_week(series: Recorded, lengths: Windows) -> str:
    return f"{in_window(series, STEP)}[{spell_duration(lengths.week)}]"


def _if_day_known(series: Recorded, lengths: Windows) -> str:
    """Requires at least a day of busy steps for a baseline."""
    labels = ", ".join(label for label in series.labels if label != Label.WINDOW)
    return f"and on ({labels}) count_over_time({_last_week(series, lengths)}) >= {number(lengths.day / lengths.step)}"
