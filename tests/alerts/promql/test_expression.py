import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.promql.build import (
    aggregate,
    call,
    either,
    equal,
    ignoring,
    in_window,
    increase,
    not_equal,
    not_regex,
    on,
    over,
    quantile,
    ranged,
    rate,
    ratio,
    regex,
    select,
    sum_by,
    with_model,
)
from alerts.promql.change import with_matchers
from alerts.promql.expression import (
    AlertLabel,
    Binary,
    Expression,
    Matcher,
    Negative,
    Number,
    Selector,
    Subquery,
    Variable,
)
from alerts.promql.multiline import multiline
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Kind, Label, Signal
from tests.support.promql_tree import tree

A, B, C = select("a"), select("b"), select("c")
QUEUE = Signal("llm_queue_seconds", Kind.HISTOGRAM, "")
REQUESTS = select(signals.REQUESTS)


@pytest.mark.parametrize(
    "value, text",
    [
        (select(signals.UP, equal(Label.JOB, 'a "b"\\\n')), r'up{job="a \"b\"\\\n"}'),
        (select("", not_equal(Label.JOB, ""), not_regex(Label.MODEL, "x|y")), '{job!="",model!~"x|y"}'),
        (rate(signals.REQUESTS, 300), "rate(llm_requests_total[5m])"),
        (over("max_over_time", rate(A, 60), 3600, 30), "max_over_time(rate(a[1m])[1h:30s])"),
        (over("max_over_time", A > 1, "1h"), "max_over_time((a > 1)[1h:])"),
        (over("min_over_time", select("a", offset=3600), 300), "min_over_time(a[5m] offset 1h)"),
        (over("min_over_time", A, "1h", "1m"), "min_over_time(a[1h:1m])"),
        (Subquery(A, "1h", "", "5m", "end()"), "a[1h:] offset 5m @ end()"),
        (Selector("a", at="1.5"), "a @ 1.5"),
        (Selector("a", window="5m", offset="-1h"), "a[5m] offset -1h"),
        (call("time"), "time()"),
        (call("label_replace", A, "new", r"$1\d", "old", "(.*)"), r'label_replace(a, "new", "$1\\d", "old", "(.*)")'),
        (sum_by(A, (Label.MODEL, Label.CLASS)), "sum by (model, class) (a)"),
        (sum_by(A, ()), "sum by () (a)"),
        (aggregate("count", A), "count(a)"),
        (aggregate("sum", A, without=()), "sum without () (a)"),
        (aggregate("topk", A, by=(Label.MODEL,), parameter=5), "topk by (model) (5, a)"),
        (aggregate("count_values", A, parameter="version"), 'count_values("version", a)'),
        (ratio(A, B), "a / (b > 0)"),
        ((A - B) - C, "a - b - c"),
        (A - (B - C), "a - (b - c)"),
        (Binary("^", A, Binary("^", B, C)), "a ^ b ^ c"),
        (Binary("^", Binary("^", A, B), C), "(a ^ b) ^ c"),
        (-A * 2, "-a * 2"),
        (-(A * 2), "-(a * 2)"),
        (Binary("^", -A, Number(2)), "(-a) ^ 2"),
        (1 - 0.05 * A, "1 - 0.05 * a"),
        (2 / (3 + A) % 7, "2 / (3 + a) % 7"),
        (Number(1e9) + Number(float("inf")), "1000000000 + inf"),
        (A.or_(B).and_(C), "(a or b) and c"),
        (A.or_(B.and_(C)), "a or b and c"),
        (either([A, B, C], on()), "a or on () b or on () c"),
        (A.unless(B, ignoring(Label.WINDOW)), "a unless ignoring (window) b"),
        (A.binary("/", B, on(Label.CLASS, left=())), "a / on (class) group_left () b"),
        (
            A.binary("*", B, on(Label.CLASS, right=(Label.SLO, Label.MODEL))),
            "a * on (class) group_right (slo, model) b",
        ),
        (Binary("==", A, Number(1), is_bool=True), "a == bool 1"),
        (in_window(signals.SLO_EVENTS_IN, 300), 'llm_slo:events:increase{window="5m"}'),
        (
            quantile(0.95, QUEUE, 300, (Label.MODEL,), [regex(Label.MODEL, "m.*")]),
            'histogram_quantile(0.95, sum by (model, le) (rate(llm_queue_seconds_bucket{model=~"m.*"}[5m])))',
        ),
        (
            with_model(A > 3),
            "llm_engine:model:group * on (instance, engine) group_left () (a > 3) or on (instance, engine) a > 3",
        ),
    ],
    ids=str,
)
def test_prints_as_promql_of_the_same_tree(value: Expression, text: str) -> None:
    assert str(value) == text
    assert tree(str(value)) == tree(text)


@pytest.mark.parametrize(
    "value, text",
    [
        (rate(select("a", regex(Label.MODEL, "${model:regex}")), "$__rate_interval"), None),
        (select("a", window="$__range", offset="${ago}"), "a[$__range] offset ${ago}"),
        (ranged(A, "$__range", "$step"), "a[$__range:$step]"),
        (A * Variable("$__range_s"), "a * $__range_s"),
        (A.binary("*", Variable("($order)"), on(Label.CLASS)), "a * on (class) ($order)"),
        (aggregate("topk", A, parameter=Variable("$n")), "topk($n, a)"),
        (call("label_values", A, Variable("model")), "label_values(a, model)"),
    ],
)
def test_variables_of_grafana_print_as_they_are(value: Expression, text: str | None) -> None:
    assert str(value) == (text or 'rate(a{model=~"${model:regex}"}[$__rate_interval])')


def test_a_label_of_an_alert_prints_as_the_verb_of_its_template() -> None:
    assert str(select("a", equal(Label.MODEL, AlertLabel("model")))) == "a{model=%q}"


@given(
    st.recursive(
        st.sampled_from([A, B, Number(2.5), Number(-1), call("time"), sum_by(REQUESTS, [Label.MODEL])]),
        lambda inner: st.one_of(
            st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "%", "^", "atan2"]), inner, inner),
            inner.map(lambda each: -each),
        ),
        max_leaves=12,
    )
)
def test_parentheses_are_where_the_precedence_needs_them(value: Expression) -> None:
    def enclosed(node: Expression) -> str:
        match node:
            case Binary():
                return f"({enclosed(node.left)} {node.operator} {enclosed(node.right)})"
            case Negative():
                return f"(-{enclosed(node.inner)})"
            case Number():
                return f"({node})"
            case _:
                return str(node)

    assert tree(str(value)) == tree(enclosed(value))


def test_matchers_are_added_to_every_selector_but_those_left_out() -> None:
    model = Matcher(Label.MODEL, "=~", "$model")
    value = increase(select("a", equal(Label.SLO, "x")), 60) / select("constant")
    assert str(with_matchers(value, [model], {"constant"})) == 'increase(a{model=~"$model",slo="x"}[1m]) / constant'


def test_a_tree_is_walked_in_its_printed_order() -> None:
    value = sum_by(rate(A, 60), ()) / (B + aggregate("topk", C, parameter=3))
    assert [each.name for each in value.walk() if isinstance(each, Selector)] == ["a", "b", "c"]


def test_expressions_have_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"^a PromQL expression has no truth value: a$"):
        bool(A)


def test_a_long_expression_has_a_line_for_each_alternative_and_aggregated_expression() -> None:
    requests = sum_by(rate(select(signals.REQUESTS, regex(Label.OUTCOME, "client_error|rejected")), 300), [Label.MODEL])
    value = (requests > 3).and_(in_window(signals.SLO_BURN_RATE, 3600) > 14.4, on(Label.MODEL)).or_(-A)
    assert multiline(value) == (
        'sum by (model) (rate(llm_requests_total{outcome=~"client_error|rejected"}[5m])) > 3\n'
        'and on (model) llm_slo:error_budget:burn_rate{window="1h"} > 14.4\n'
        "or -a"
    )
    assert multiline(100 * sum_by(value, []), 4) == (
        "100 * sum by () (\n"
        '      sum by (model) (rate(llm_requests_total{outcome=~"client_error|rejected"}[5m])) > 3\n'
        '      and on (model) llm_slo:error_budget:burn_rate{window="1h"} > 14.4\n'
        "      or -a\n"
        "    )"
    )
