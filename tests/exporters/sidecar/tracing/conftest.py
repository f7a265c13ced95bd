"""Spans that are sent at once, for tests that do not look at batches."""

import pytest

from exporters.sidecar.tracing import span_exporter, span_forwarder


@pytest.fixture
def quick_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (span_exporter, span_forwarder):
        monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)
