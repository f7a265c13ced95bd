"""An engine is warm from the report on, until its process ends."""

import pytest

from exporters.engines.condition.evidence import Contact, Scrape
from exporters.engines.condition.watch import Warmth

FRESH, USED, NEXT = Scrape(1.0, 1000.0, (0.0,)), Scrape(1.0, 1000.0, (7.0,)), Scrape(9.0, 2000.0, (7.0,))
NAMELESS = Scrape(1.0, None, (7.0,))
"""An engine that does not expose when it started."""


@pytest.mark.parametrize(
    "before, after, warm",
    [
        pytest.param([FRESH], [], True, id="reported"),
        pytest.param([], [FRESH], True, id="reported before the first scrape"),
        pytest.param([FRESH], [FRESH, USED], True, id="the same process"),
        pytest.param([FRESH], [NEXT], False, id="another process"),
        pytest.param([FRESH], [None, FRESH], True, id="a connection that failed"),
        pytest.param([NAMELESS], [None, NAMELESS], False, id="a process without a start time that stopped listening"),
        pytest.param([NAMELESS], [NAMELESS], True, id="a process without a start time"),
    ],
)
def test_a_report_holds_until_the_process_ends(
    before: list[Scrape | None], after: list[Scrape | None], *, warm: bool
) -> None:
    warmth = Warmth()
    observe(warmth, before)
    warmth.report()
    observe(warmth, after)
    assert warmth.warm is warm


@pytest.mark.parametrize(
    "seen, warm",
    [
        pytest.param([], False, id="nothing"),
        pytest.param([FRESH, USED], False, id="requests after the start of the sidecar"),
        pytest.param([USED], True, id="requests before it"),
        pytest.param([USED, NEXT], False, id="another process"),
        pytest.param([None, USED], False, id="a start after that of the sidecar"),
    ],
)
def test_without_a_report_only_an_engine_that_had_worked_before_is_warm(
    seen: list[Scrape | None], *, warm: bool
) -> None:
    warmth = Warmth()
    observe(warmth, seen)
    assert warmth.warm is warm


def observe(warmth: Warmth, seen: list[Scrape | None]) -> None:
    """None: the connection is refused."""
    for scrape in seen:
        warmth.observe(Contact.REFUSED if scrape is None else Contact.ANSWERS, scrape)
