"""Sends the waves of the warm-up, before a run and outside its series and figures."""

from collections.abc import Sequence

from loadgen.client.http_client import HttpClient
from loadgen.results.record import Record
from loadgen.run.dispatcher import Dispatcher
from loadgen.run.live_figures import LiveFigures
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.settings import RunSettings
from loadgen.schedule.requests import PlannedRequest


class WaveSender:
    """Sends the requests of each wave at once, by a dispatcher of its own."""

    def __init__(self, settings: RunSettings, model: str, client: HttpClient) -> None:
        self._settings = settings
        self._model = model
        self._client = client
        self._dispatcher: Dispatcher | None = None

    def send(self, requests: Sequence[PlannedRequest]) -> list[Record]:
        """The records of a wave, after the end of all its requests."""
        records: list[Record] = []
        series = LoadCollector(self._settings.slos)
        self._dispatcher = dispatcher = Dispatcher(
            self._settings,
            self._model,
            self._client,
            series,
            lambda record, _: records.append(record),
            LiveFigures(),
        )
        (group,) = dispatcher.encode(requests)
        dispatcher.begin()
        dispatcher.offer([group], self._settings.plan.schedule, ())
        dispatcher.drain(self._settings.plan.timeout + 1)
        dispatcher.cut()
        self._dispatcher = None
        return records

    def stop(self) -> None:
        """End the wave that is being sent."""
        if self._dispatcher is not None:
            self._dispatcher.stop()
