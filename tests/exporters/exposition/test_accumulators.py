"""The exposition is identical to the one of prometheus_client, although accumulators format most of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from exporters.exposition.accumulators import Accumulator, Counter, ExemplarTrace, Families, Histogram, gauge
from exporters.sidecar.http_api.http_server import exposition
from exporters.vocabulary import signals
from tests.support.openmetrics import whole

TEXT, OPENMETRICS = "text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"

labels = st.tuples(*[st.text() for _ in signals.TTFT.labels])
amounts = st.floats(min_value=0, allow_infinity=False) | st.integers(0, 1 << 60).map(float)
traces = st.none() | st.tuples(st.floats(0, 2e9), st.text("0123456789abcdef", min_size=32, max_size=32))
Observation = tuple[tuple[str, ...], float, ExemplarTrace | None]
observations_by_scrape = st.lists(st.lists(st.tuples(labels, amounts, traces), max_size=4), min_size=1, max_size=3)
TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER_TRACE = "7" * 32


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
@settings(max_examples=50)
@given(observations_by_scrape)
def test_the_exposition_is_that_of_prometheus_client(accept: str, scrapes: list[list[Observation]]) -> None:
    counter, histogram = Counter(signals.PROMPT_REPEATS), Histogram(signals.TTFT, (0.5, 1, 1e6, 1e7))
    for observations in scrapes:
        for each, amount, trace in observations:
            counter.show(each)[0] += amount
            histogram.show(each).observe(amount, trace)
        families: list[Metric | Accumulator] = [counter, gauge(signals.SIDECAR_BUILD, [(("1.0",), 1.0)]), histogram]
        encode, content_type = choose_encoder(accept)
        assert exposition(families, accept) == (encode(Families(*whole(families))), content_type)


def test_a_bucket_has_the_exemplar_that_ended_last_in_any_order_of_observation() -> None:
    histogram = Histogram(signals.TTFT, (1,))
    for at, trace_id, value in [(20.5, TRACE, 0.25), (10.0, OTHER_TRACE, 0.5), (10.0, OTHER_TRACE, 3.0)]:
        histogram.show(("m", "c")).observe(value, (at, trace_id))
    histogram.series(("m", "c")).observe(0.75)
    lines = exposition([histogram], OPENMETRICS)[0].decode().splitlines()
    assert [line.partition(" ")[2] for line in lines if "_bucket" in line] == [
        f'3.0 # {{trace_id="{TRACE}"}} 0.25 20.5',
        f'4.0 # {{trace_id="{OTHER_TRACE}"}} 3.0 10.0',
    ]
    assert b"trace_id" not in exposition([histogram], TEXT)[0]


@settings(max_examples=50)
@given(observations_by_scrape)
def test_a_series_is_at_0_in_an_exposition_before_its_first_count(scrapes: list[list[Observation]]) -> None:
    counter, histogram = Counter(signals.PROMPT_REPEATS), Histogram(signals.TTFT, (0.5, 1, 1e6, 1e7))
    families: list[Metric | Accumulator] = [counter, histogram]
    counter.series(("never", "counted"))
    histogram.series(("never", "counted"))
    seen: set[bytes] = set()
    for observations in scrapes:
        for each, amount, _ in observations:
            counter.add(each, amount)
            histogram.series(each).observe(amount)
        lines = [line.rpartition(b" ") for line in exposition(families, TEXT)[0].split(b"\n") if line[:3] == b"llm"]
        assert {float(value) for name, _, value in lines if name not in seen} <= {0.0}
        seen = {name for name, _, _ in lines}
    assert not any(b'"never"' in name for name in seen)
    encode, _ = choose_encoder(TEXT)
    assert exposition(families, TEXT)[0] == encode(Families(*whole(families)))
