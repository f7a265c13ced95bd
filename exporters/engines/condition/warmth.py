"""Whether the process of an engine is warm: reported by `vllm-slo load warm-up --ready`, until the process ends."""

from exporters.engines.condition.evidence import Contact, Scrape


class Warmth:
    """An engine that has worked before the first scrape is warm too, so that a restarted sidecar fails no replica."""

    def __init__(self) -> None:
        self.warm = False
        self._scraped = False
        self._stopped = False
        """Whether it has refused connections since the last scrape."""
        self._started_at: float | None = None

    def report(self) -> None:
        """The engine is warm now."""
        self.warm = True

    def observe(self, contact: Contact, scrape: Scrape | None) -> None:
        """Take what the last attempt to scrape met, and the last successful scrape."""
        if contact is Contact.REFUSED:
            self._stopped = True
        if contact is not Contact.ANSWERS or scrape is None:
            return
        if not self._scraped:
            self.warm = self.warm or (any(scrape.work) and not self._stopped)
        elif scrape.started_at != self._started_at or (self._stopped and scrape.started_at is None):
            self.warm = False
        self._scraped, self._stopped, self._started_at = True, False, scrape.started_at
