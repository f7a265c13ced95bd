"""The engines behind one sidecar."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import Metric

from exporters.engines.flips import revision
from exporters.engines.scraper import Scraper
from exporters.engines.state import EngineState, collect
from exporters.engines.targets import Target


class Fleet:
    """One scraper an engine, so that one that hangs delays no other; whoever reads, reads what they have found."""

    def __init__(
        self,
        targets: Sequence[Target],
        interval: float,
        on_models: Callable[[tuple[str, ...]], None],
        tls: ssl.SSLContext,
    ) -> None:
        self._scrapers = [Scraper(target, interval, on_models, tls) for target in targets]

    @property
    def states(self) -> list[EngineState]:
        return [scraper.state for scraper in self._scrapers]

    async def run(self) -> None:
        """Scrape for ever."""
        await asyncio.gather(*(scraper.run() for scraper in self._scrapers))

    def collect(self) -> Iterator[Metric]:
        return collect(self.states, time.monotonic())

    @property
    def revision(self) -> str | None:
        """That of the engine; of several, which may serve any request, a hash of theirs."""
        known = {state.name: state.watch.revision for state in self.states if state.watch.revision is not None}
        if len(self._scrapers) == 1:
            return next(iter(known.values()), None)
        return revision(known) if known else None
