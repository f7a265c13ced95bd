"""Groups that read the series of other groups: Prometheus evaluates groups independently, at most one interval late."""

from alerts.rule_file import rules
from alerts.rule_groups import Recording
from compose.backfill.rule_order import TimedRule
from exporters.signals import STEP_TIME
from exporters.slos import SHIPPED, load


def test_these_groups_read_the_series_of_others() -> None:
    groups = rules(load(SHIPPED))
    recorded = [(group.name, rule) for group in groups for rule in group.rules if isinstance(rule, Recording)]
    pairs = {
        (reader.name.removeprefix("vllm-slo-"), writer.removeprefix("vllm-slo-"))
        for reader in groups
        for rule in reader.rules
        for writer, other in recorded
        if writer != reader.name and TimedRule(Recording(STEP_TIME, rule.expr), 0, 0).reads(TimedRule(other, 0, 0))
    }
    assert pairs == {
        ("baselines", "work"),
        ("burn", "constants"),
        ("burn", "liveness"),
        ("burn", "summed-windows"),
        ("causes", "baselines"),
        ("causes", "burn"),
        ("causes", "constants"),
        ("causes", "liveness"),
        ("liveness", "causes"),
        ("replicas", "liveness"),
        ("summed-windows", "constants"),
        ("summed-windows", "steps"),
    }
