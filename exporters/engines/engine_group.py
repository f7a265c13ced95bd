"""The engines behind one sidecar."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from exporters.engines.config_change_store import ConfigChangeStore
from exporters.engines.config_changes import Taken, revision
from exporters.engines.engine_state import EngineState, collect
from exporters.engines.scrape_targets import Target
from exporters.engines.scraper import Scraper


class Fleet:
    """One scraper an engine, so that one that hangs delays no other; whoever reads, reads what they have found."""

    def __init__(
        self,
        targets: Sequence[Target],
        interval: float,
        on_models: Callable[[tuple[str, ...]], None],
        tls: ssl.SSLContext,
        memory: ConfigChangeStore | None = None,
    ) -> None:
        self._scrapers = [Scraper(target, interval, on_models, tls, self._remember) for target in targets]
        self._memory = memory
        kept = {} if memory is None else memory.load()
        for state in self.states:
            state.watch = kept.get(state.name, state.watch)

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

    def answered(self, fingerprint: str, at: float) -> None:
        """An answer that ended at `at` (unix) carried it; of several engines nobody knows whose it is."""
        if len(self._scrapers) == 1:
            self._scrapers[0].state.watch.answered(fingerprint, at)

    def declare(self, engines: Sequence[str], settings: Mapping[str, str], note: str) -> dict[str, dict[str, Taken]]:
        """An operator says what holds now at these engines."""
        now = time.time()
        taken = {state.name: state.watch.declare(settings, note, now) for state in self.states if state.name in engines}
        self._remember()
        return taken

    def _remember(self) -> None:
        if self._memory is not None:
            self._memory.save({state.name: state.watch.known for state in self.states}, time.time())
