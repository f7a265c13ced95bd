"""Every expression of the rules of differing SLO files parses, as one line and in lines, and so do queries in texts."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from alerts.prices import ApiPrice, Prices
from alerts.promql.multiline import multiline
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from exporters.vocabulary.slo_file import SHIPPED, SloFile, Source, load
from tests.support.promql_tree import tree
from tests.support.promtool import ROOT

SPEC, LAB = load(SHIPPED), load(ROOT / "compose/slos.yaml")
TENANTS = replace(SPEC.alerting, per_tenant=True)
FILES = pytest.mark.parametrize(
    "spec",
    [
        pytest.param(SPEC, id="shipped"),
        pytest.param(LAB, id="12 hours"),
        pytest.param(replace(SPEC, group_by=("cluster", "namespace"), alerting=TENANTS), id="fleet"),
        pytest.param(replace(SPEC, source=Source.ENGINE), id="without a sidecar"),
        pytest.param(replace(LAB, source=Source.ENGINE, group_by=("cluster",)), id="fleet without a sidecar"),
        pytest.param(replace(SPEC, slos=tuple(replace(s, objective=0.9) for s in SPEC.slos)), id="rescaled tiers"),
    ],
)
PRICES = Prices(3.0, ApiPrice(0.2, 0.05, 0.6))
QUERY = re.compile(r"query \(printf `([^`]*)`")


def queries(alert: Alert) -> Iterator[str]:
    """The queries of its texts, with values in place of the verbs."""
    for text in alert.annotations.values():
        yield from (query.replace("%q", '"x"').replace("%f", "1") for query in QUERY.findall(text))


@FILES
def test_every_expression_and_query_is_promql(spec: SloFile) -> None:
    found = 0
    for group in rules(spec, prices=PRICES, autoscaling=spec.source is Source.SIDECAR):
        for rule in group.rules:
            assert tree(multiline(rule.expr)) == tree(str(rule.expr))
            for query in queries(rule) if isinstance(rule, Alert) else ():
                assert tree(query)
                found += 1
    assert found
