"""The number of rules and series follows the formulas in docs/design/rules.md."""

from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.rule_file import rules
from alerts.rules.groups import Alert
from exporters.vocabulary.slo_file import Latency, SloFile, load, loads
from tests.support.promtool import ROOT, Case, Pace, Promtool, counter

DOCS = ROOT / "docs/design/rules.md"
SHIPPED = load(ROOT / "alerts/slos.yaml")
WEIGHT_OF_AN_SLO, WEIGHT_OF_A_CLASS = 51, 27
"""Recorded series per model: for each class of each SLO, and for each class."""
WINDOWS = 8
"""The windows of the tiers, and the period."""


def pairs(spec: SloFile) -> int:
    return sum(len(slo.classes) for slo in spec.slos)


def constants(spec: SloFile) -> int:
    """Objectives of each class of each SLO, thresholds where there are any, goodput objectives, lengths of windows."""
    with_threshold = sum(len(slo.classes) for slo in spec.slos if isinstance(slo.sli, Latency))
    with_goodput = sum(sum(s.budget for s in spec.slos_of(c)) < 1 for c in classes_with_slos(spec))
    return pairs(spec) + with_threshold + with_goodput + WINDOWS


def classes_with_slos(spec: SloFile) -> tuple[str, ...]:
    return tuple(name for name in spec.class_names if spec.slos_of(name))


def spec_of_size(slos: int, classes: int, tenants: int, per_tenant: bool) -> SloFile:
    names = [f"c{n}" for n in range(classes)]
    class_list = ", ".join(names)
    return loads(
        f"version: 1\nperiod: 30d\ntenants: {{allow: [{', '.join(f't{n}' for n in range(tenants))}]}}\nclasses:\n"
        + "".join(f"  - {{name: {name}}}\n" for name in names)
        + "slos:\n"
        + "".join(
            f"  - {{name: s{n}, classes: [{class_list}], signal: ttft, threshold: {n + 1}s, objective: 99%}}\n"
            for n in range(slos)
        )
        + f"alerting: {{per_tenant: {str(per_tenant).lower()}}}\n"
    )


@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 50), st.booleans())
def test_the_number_of_rules_depends_only_on_slos_and_classes(
    slos: int, classes: int, tenants: int, per_tenant: bool
) -> None:
    spec = spec_of_size(slos, classes, tenants, per_tenant)
    all_rules = [rule for group in rules(spec) for rule in group.rules]
    alerts = sum(isinstance(rule, Alert) for rule in all_rules)
    assert alerts == 34 + 2 * slos + (slos if per_tenant else 0)
    assert len(all_rules) - alerts == 98 + constants(spec) + (12 if per_tenant else 0)


def test_recorded_series_grow_with_models_classes_slos_and_tenants(promtool: Promtool) -> None:
    """After a complete dozen of steps with events on every series, all windows exist."""
    text = (ROOT / "alerts/slos.yaml").read_text().replace("per_tenant: false", "per_tenant: true")
    spec = loads(text.replace("allow: []", "allow: [a, b]"))
    pace, models, steps = Pace(spec), ("org/m", "org/n"), 23
    growth = counter((10, pace.scrapes(steps)))
    series = {
        f'{name}{{model="{model}",class="{cls}",slo="{slo.name}",tenant="{tenant}"}}': growth
        for name in ("llm_slo_events_total", "llm_slo_bad_events_total")
        for model in models
        for slo in spec.slos
        for cls in slo.classes
        for tenant in spec.tenant_names
    } | {
        f'{name}{{model="{model}",class="{cls}",tenant="a"}}': growth
        for name in ("llm_goodput_events_total", "llm_goodput_requests_total")
        for model in models
        for cls in classes_with_slos(spec)
    }
    shared = len(models) * (WEIGHT_OF_AN_SLO * pairs(spec) + WEIGHT_OF_A_CLASS * len(classes_with_slos(spec)))
    case = Case(spec, series, pace.step)
    case.expect(pace.seconds(steps), 'count({__name__=~"llm_(slo|goodput):.*"})', {"{}": shared + constants(spec)})
    each = 12 * len(models) * pairs(spec) * len(spec.tenant_names)
    promtool.test([case.expect(pace.seconds(steps), 'count({__name__=~"llm_slo_tenant:.*"})', {"{}": each})])
