"""Loaded rules against the SLO file."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.links import Links
from alerts.prices import Prices
from alerts.rule_file import render, rules
from compose.doctor.rule_difference import Rule, Rules, best_match, difference, our_rules, rendered
from exporters.vocabulary.slo_file import SHIPPED, Measure, SloFile, Source, load

SPEC = load(SHIPPED)
OURS = rendered(SPEC)
KEYS = sorted(OURS)


def in_file(text: str) -> Rules:
    return our_rules(yaml.safe_load(text)["groups"])


def test_durations_that_a_rule_file_rounds_are_the_same() -> None:
    spec = replace(SPEC, period=7200.0, scrape_interval=0.2)
    assert any(group.interval != round(group.interval, 3) for group in rules(spec))
    assert difference(rendered(spec), in_file(render(spec))).count == 0


@pytest.mark.slow
@pytest.mark.parametrize("source", Source)
def test_a_rendered_file_has_the_rules_of_its_slo_file(source: Source) -> None:
    """Whatever the links and prices are: they are flags, and not in the SLO file."""
    spec = replace(SPEC, source=source)
    for text in (
        render(spec),
        render(spec, Links("https://runbooks", "https://grafana", "https://traces"), Prices(2.5)),
    ):
        assert difference(rendered(spec), in_file(text)).count == 0


def with_objective(objective: float) -> SloFile:
    return replace(SPEC, slos=tuple(replace(slo, objective=objective) for slo in SPEC.slos))


def change(rule: Rule, part: str) -> Rule:
    if part == "expression":
        return replace(rule, expression=f"{rule.expression} + 1")
    return replace(rule, **{part: getattr(rule, part) + 1})


@settings(max_examples=30)
@given(st.sampled_from(KEYS), st.sampled_from(["expression", "interval", "pending_for", "keep_firing_for"]))
def test_a_change_of_one_rule_is_found(key: tuple[str, tuple[tuple[str, str], ...]], part: str) -> None:
    found = difference(OURS, {**OURS, key: change(OURS[key], part)})
    assert (len(found.missing), len(found.changed), len(found.extra)) == (0, 1, 0)
    assert found.changed[0].startswith(key[0])


@pytest.mark.slow
@settings(max_examples=30)
@given(st.sets(st.sampled_from(KEYS), min_size=1))
def test_missing_and_extra_rules_are_each_other_s_reverse(keys: set[tuple[str, tuple[tuple[str, str], ...]]]) -> None:
    rest = {key: rule for key, rule in OURS.items() if key not in keys}
    missing, extra = difference(OURS, rest), difference(rest, OURS)
    assert (len(missing.missing), missing.changed, missing.extra) == (len(keys), (), ())
    assert missing.missing == extra.extra
    assert missing.count == len(keys)


def test_white_space_is_no_difference_and_another_spelling_is_asked_about_once() -> None:
    asked: list[str] = []

    def formatted(expression: str) -> str:
        asked.append(expression)
        return expression.replace("7d", "1w")

    printed = {
        key: replace(rule, expression=re.sub(r"\s+", " ", rule.expression).replace("[7d]", "[1w]"))
        for key, rule in OURS.items()
    }
    assert difference(OURS, printed, formatted).count == 0
    assert asked
    assert all("[7d]" in expression for expression in asked)
    without_format = difference(OURS, printed)
    assert len(without_format.changed) == len(asked)


def never(expression: str) -> str:
    raise AssertionError(expression)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec,name,source,formatted",
    [
        pytest.param(SPEC, "shipped", Source.SIDECAR, never, id="the first file"),
        pytest.param(with_objective(0.9), "other", Source.SIDECAR, never, id="the second file"),
        pytest.param(replace(SPEC, source=Source.ENGINE), "shipped", Source.ENGINE, never, id="the other source"),
    ],
)
def test_the_file_and_the_source_are_found_by_the_rules(
    spec: SloFile, name: str, source: Source, formatted: Callable[[str], str]
) -> None:
    match = best_match([("shipped", SPEC), ("other", with_objective(0.9))], rendered(spec), formatted)
    assert (match.name, match.spec.source, match.difference.count) == (name, source, 0)
    assert match.total == len(rendered(spec))


def test_a_file_of_which_vllm_alone_counts_nothing_has_one_source() -> None:
    spec = replace(SPEC, slos=tuple(slo for slo in SPEC.slos if slo.measure is Measure.AVAILABILITY))
    match = best_match([("shipped", spec)], rendered(spec), never)
    assert (match.spec, match.difference.count) == (spec, 0)


def test_without_rules_the_first_file_is_missing_all_of_its_rules() -> None:
    match = best_match([("shipped", SPEC), ("other", with_objective(0.9))], {}, never)
    assert (match.name, match.spec) == ("shipped", SPEC)
    assert len(match.difference.missing) == match.total == len(OURS)


def test_rules_of_other_groups_are_not_ours() -> None:
    groups = [{"name": "node", "interval": 15, "rules": [{"name": "up:sum", "query": "sum(up)"}]}]
    assert our_rules(groups) == {}


def test_the_text_names_the_first_rule_of_each_kind() -> None:
    first, second, third, *_ = KEYS
    expected = {key: OURS[key] for key in (first, second)}
    found = {second: change(OURS[second], "interval"), third: OURS[third], ("x", (("window", "5m"),)): OURS[third]}
    text = str(difference(expected, found))
    assert text.startswith(f"1 missing ({first[0]}")
    assert "1 changed" in text
    assert "2 not of this file" in text
