"""The engines behind one sidecar."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from prometheus_client.core import Metric

from exporters.engines.bearer_token import EngineToken
from exporters.engines.changes.config_changes import DeclarationResult, revision
from exporters.engines.changes.store import ConfigChangeStore
from exporters.engines.condition.evidence import Requests
from exporters.engines.condition.probe import FRESH_SECONDS, Prober
from exporters.engines.condition.rule import LIMITS
from exporters.engines.condition.watch import ConditionWatch, requests_of
from exporters.engines.scrape_targets import Target
from exporters.engines.scraper import HURRY_SECONDS, Scraper
from exporters.engines.state import EngineState, collect
from exporters.records.messages import Waits
from exporters.vocabulary import signals
from exporters.vocabulary.slo_file import SloFile

Run = Callable[[], Coroutine[None, None, None]]


class EngineGroup:
    """One scraper per engine, so a stalled engine does not delay the others; readers get the last results."""

    def __init__(
        self,
        targets: Sequence[Target],
        interval: float,
        on_models: Callable[[tuple[str, ...]], None],
        tls: ssl.SSLContext,
        store: ConfigChangeStore | None = None,
        token: EngineToken | None = None,
        *,
        sees_responses: bool = False,
        probes: bool = False,
    ) -> None:
        self._scrapers = [Scraper(target, interval, on_models, tls, self._save, token) for target in targets]
        self.conditions = [ConditionWatch(target.name) for target in targets]
        self._probers = [Prober(target, tls, token) if probes else None for target in targets]
        self._start_limit: Callable[[Sequence[str]], float] = lambda _models: LIMITS.start
        self._store = store
        stored = {} if store is None else store.load()
        for state in self.states:
            state.watch = stored.get(state.name, state.watch)
            state.watch.fingerprint_pending = sees_responses and len(self._scrapers) == 1

    @property
    def states(self) -> list[EngineState]:
        return [scraper.state for scraper in self._scrapers]

    def use(self, file: SloFile) -> None:
        """Use the interval of scrapes and the limit of a start of this SLO file."""
        self._start_limit = file.start_limit
        for scraper in self._scrapers:
            scraper.set_interval(file.scrape_interval)

    async def run(self, keep_running: Callable[[Run], Coroutine[None, None, None]] = lambda run: run()) -> None:
        """Scrape all engines forever; `keep_running` runs the scraper of one engine and handles its exceptions."""
        try:
            await asyncio.gather(*(keep_running(scraper.run) for scraper in self._scrapers))
        finally:
            for prober in filter(None, self._probers):
                prober.close()

    def collect(self) -> Iterator[Metric]:
        return collect(self.states, time.monotonic(), [*self.conditions, *filter(None, self._probers)])

    def observe(self, waits: Iterable[Waits], now: float) -> None:
        """Take the evidence of the relays and of the last scrapes; called each second."""
        of_relays = requests_of(waits) if len(self._scrapers) == 1 else Requests()
        for scraper, watch, prober in zip(self._scrapers, self.conditions, self._probers, strict=True):
            engine = scraper.state
            watch.limits = replace(LIMITS, start=self._start_limit(engine.models))
            watch.observe(engine, of_relays if prober is None else prober.add_to(of_relays), now)
            # Scrapes alone show nothing until the next one.
            if watch.condition.stalled_for(now) > (HURRY_SECONDS if of_relays.awaited else scraper.interval):
                scraper.hurry()
            if prober is None or not prober.is_due(watch.condition, engine, now):
                continue
            if engine.last_success_at is None or now - engine.last_success_at > FRESH_SECONDS:
                scraper.hurry(FRESH_SECONDS)
            else:
                prober.send(watch.condition, engine, now)

    def report_warm(self) -> list[str]:
        """All engines are warm now; returns their names."""
        for each in self.conditions:
            each.warmth.report()
        return [each.name for each in self.conditions]

    def troubles(self, now: float) -> list[str]:
        """A line for each engine that is wedged or down."""
        return [each.line(now).rstrip() for each in self.conditions if each.failing]

    def running(self) -> dict[str, float]:
        """The running requests of all ranks, by engine; without engines that are down or do not expose them."""
        by_engine = {state.name: state.metrics.values.get(signals.ENGINE_RUNNING) for state in self.states if state.up}
        return {name: sum(ranks.values()) for name, ranks in by_engine.items() if ranks}

    @property
    def revision(self) -> str | None:
        """The revision of the only engine; a hash of all revisions if several engines may serve a request."""
        revisions = {state.name: state.watch.revision for state in self.states if state.watch.revision is not None}
        if len(self._scrapers) == 1:
            return next(iter(revisions.values()), None)
        return revision(revisions) if revisions else None

    def observe_fingerprint(self, fingerprint: str, at: float) -> None:
        """Record the fingerprint of a response that ended at `at` (unix); ignored with several engines."""
        if len(self._scrapers) == 1:
            self._scrapers[0].state.watch.observe_fingerprint(fingerprint, at)

    def observe_no_fingerprint(self, at: float, *, certain: bool) -> None:
        """Record a response without one; `certain`: its API has a fingerprint, so the engine has none."""
        for scraper in self._scrapers:
            scraper.state.watch.observe_no_fingerprint(at, certain=certain)

    def declare(
        self, engines: Sequence[str], settings: Mapping[str, str], note: str
    ) -> dict[str, dict[str, DeclarationResult]]:
        """Record an operator's declaration that these engines run with these settings."""
        now = time.time()
        results = {
            state.name: state.watch.declare(settings, note, now) for state in self.states if state.name in engines
        }
        self._save()
        return results

    def _save(self) -> None:
        if self._store is not None:
            self._store.save({state.name: state.watch.history for state in self.states}, time.time())
