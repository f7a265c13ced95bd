"""What a relay sees of the engine's work: requests that wait for it, and output that has arrived."""

from collections.abc import Iterable

from exporters.records.messages import Finished, Waits
from exporters.relay.connections.exchange import Exchange
from exporters.vocabulary.signals import Outcome

MAX_MODELS = 100
"""Models that are reported: names are those of clients, and there may be thousands."""

_OK = Outcome.OK
_FAILURES = frozenset({Outcome.UPSTREAM_ERROR, Outcome.UPSTREAM_UNREACHABLE, Outcome.TRUNCATED})


class EngineWaits:
    """Counts ended requests; the open ones are read when a snapshot is taken."""

    def __init__(self) -> None:
        self._served = self._reported = self._failed = 0
        self._models: dict[str, None] = {}
        self._output_at: float | None = None

    def ended(self, record: Finished) -> None:
        if record.outcome is _OK:
            self._served += 1
            self._note_model(record.model)
        elif record.outcome in _FAILURES:
            self._failed += 1

    def snapshot(self, exchanges: Iterable[Exchange], now: float) -> Waits:
        """The state at `now`, in monotonic seconds; a request that ended since the last snapshot ended now."""
        if self._served != self._reported:
            self._reported, self._output_at = self._served, now
        awaited, models, longest = 0, set[str](), 0.0
        for exchange in exchanges:
            measurement = exchange.measurement
            if not measurement.metered:
                continue
            if measurement.has_output:
                self._note_model(measurement.model)
                self._output_at = max(self._output_at or 0.0, measurement.last_output_at)
            if exchange.awaits_engine:
                awaited += 1
                if len(models) < MAX_MODELS:
                    models.add(measurement.model)
                if not measurement.has_output:
                    longest = max(longest, measurement.prompt_estimate)
        return Waits(awaited, tuple(models), longest, self._output_at, tuple(self._models), self._failed)

    def _note_model(self, model: str) -> None:
        if model not in self._models and len(self._models) < MAX_MODELS:
            self._models[model] = None
