"""The page is prometheus_client's, byte for byte, though most of it is written here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from exporters import signals
from exporters.sidecar.pages import page
from exporters.sidecar.tally import Counter, Families, Histogram, Tally, gauge
from tests.sidecar.openmetrics import whole

TEXT, OPENMETRICS = "text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"

labels = st.tuples(*[st.text() for _ in signals.TTFT.labels])
amounts = st.floats(min_value=0, allow_infinity=False) | st.integers(0, 1 << 60).map(float)
scrapes = st.lists(st.lists(st.tuples(labels, amounts), max_size=4), min_size=1, max_size=3)


@pytest.mark.parametrize("accept", [TEXT, OPENMETRICS])
@given(scrapes)
def test_every_page_is_as_prometheus_client_writes_it(
    accept: str, told: list[list[tuple[tuple[str, ...], float]]]
) -> None:
    counter, histogram = Counter(signals.PROMPT_REPEATS), Histogram(signals.TTFT, (0.5, 1, 1e6, 1e7))
    for between_scrapes in told:
        for each, amount in between_scrapes:
            counter.add(each, amount)
            histogram.observe(each, amount)
        families: list[Metric | Tally] = [counter, gauge(signals.SIDECAR_BUILD, [(("1.0",), 1.0)]), histogram]
        encode, content_type = choose_encoder(accept)
        assert page(families, accept) == (encode(Families(*whole(families))), content_type)
