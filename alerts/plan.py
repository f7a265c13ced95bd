"""What rules, boards and `explain` compute from the SLO file, once: windows, tiers, intervals, time limits."""

from collections.abc import Mapping
from dataclasses import dataclass

from alerts.engine_only import SupportedSlo, UnsupportedSlo, effective_spec, evaluate_slos
from alerts.links import Links
from alerts.tiers import Severity, Tier, fit, tiers
from exporters.vocabulary.slo_file import Slo, SloFile, Source

STEP = "step"
"""The value of the label `window` on the counts of one step; longer windows are sums of steps."""

DOZEN = "12steps"
"""The value of `window` on the counts of twelve steps; the longest windows are sums of dozens."""

OPEN = "open"
"""The value of `window` on the counts since the last `DOZEN`, without the last step."""

LONGEST_GAP = 72
"""Steps for which the counts since the last `DOZEN` are kept without an evaluation."""

# An instant selector looks back 5 minutes, so each series that it reads is recorded more often than that.
_READ_BY_NAME = 240.0
_EVERY_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Windows, intervals and times in seconds. `Plan.of` computes it."""

    spec: SloFile
    """The file as the rules use it: for vLLM alone, with one class, and thresholds at bounds of its histograms."""
    links: Links
    supported: tuple[SupportedSlo, ...]
    """The SLOs that vLLM alone can count; none with a sidecar."""
    unsupported: tuple[UnsupportedSlo, ...]
    """The SLOs that vLLM alone cannot count; none with a sidecar."""

    tiers: tuple[Tier, ...]
    """The published tiers, from the fastest page to the slowest ticket."""
    tiers_of: Mapping[str, tuple[Tier, ...]]
    """The tiers of each SLO by its name, in the same order; some are rescaled to be reachable."""

    direct: tuple[float, ...]
    """Windows that are read from the raw counters, ascending."""
    of_steps: tuple[float, ...]
    """Windows that are summed over steps."""
    of_dozens: tuple[float, ...]
    """Windows that are summed over dozens of steps; the last one is the period."""

    step: float
    """The shortest window: 5 m of 30 d."""
    dozen: float
    lookback: float
    """Three steps: long enough for the share of a class at one sidecar."""
    outlier_window: float
    """Two steps: a replica without a good request is half bad after one step."""
    hour: float
    """The long window of the fastest page; this and the next ones are named as for a period of 30 d."""
    half_hour: float
    """The short window of the slower page, in which lost measurements raise a ticket."""
    quarter_day: float
    """The long window of the slower page. A class needs `min_events` events in it to page on its own, and a group
    without targets counts as removed after it."""
    day: float
    week: float

    direct_interval: float
    """Five evaluations in the shortest window, but at most one per scrape."""
    summed_interval: float
    """Interval of one step, as the sums change; shorter only if a step is longer than the lookback of Prometheus."""
    liveness_interval: float
    """The interval of scrapes, as the alerts on liveness read few series."""
    outlier_interval: float
    """Five evaluations in the window of outliers, but at most one per scrape; seven in that of ended requests."""

    down_after: float
    """A target without a successful scrape for this time counts as down."""
    cold_start: float
    """How long an engine may take to start, while others serve its model."""
    warm_up: float
    """How long it may be slow after that, and take to start if no other serves its model; at least the time to detect
    that it is down."""
    second_start: float
    """A second start within this time is a failure and holds back no page, if there is no sidecar. The time for
    which pages are held is limited within the same window."""
    page_bridge: float
    """How long a page keeps firing after its burn; bridges outliers of the short window."""

    @classmethod
    def of(cls, file: SloFile, links: Links = Links()) -> "Plan":  # noqa: B008 - frozen
        """The plan of an SLO file.

        Each evaluation reads every sample of a window: 240 for an hour of 15 s scrapes, 288 for a day of steps, but 24
        for a day of dozens. So each window uses the coarsest counts that are precise enough for its tier.

        Raises:
            UsageError: the rules read vLLM alone, which can count none of the SLOs.
        """
        spec = effective_spec(file)
        evaluated = () if spec.source is Source.SIDECAR else evaluate_slos(file)
        published = tiers(spec.period)
        fast_page, slow_page, *_ = published
        lengths = {round(window, 3) for tier in published for window in (tier.long, tier.short)}
        hour, quarter_day = round(fast_page.long, 3), round(slow_page.long, 3)
        step, scrape = round(spec.period / 8640, 3), spec.scrape_interval
        outlier_window = round(2 * step, 3)
        cold_start = spec.start_limit()
        return cls(
            spec=spec,
            links=links,
            supported=tuple(each for each in evaluated if isinstance(each, SupportedSlo)),
            unsupported=tuple(each for each in evaluated if isinstance(each, UnsupportedSlo)),
            tiers=published,
            tiers_of={slo.name: tuple(fit(tier, slo) for tier in published) for slo in spec.slos},
            direct=tuple(sorted(w for w in lengths if w <= hour)),
            of_steps=tuple(sorted(w for w in lengths if hour < w <= quarter_day)),
            of_dozens=(*sorted(w for w in lengths if w > quarter_day), spec.period),
            step=step,
            dozen=round(12 * step, 3),
            lookback=3 * step,
            outlier_window=outlier_window,
            hour=fast_page.long,
            half_hour=slow_page.short,
            quarter_day=slow_page.long,
            day=round(spec.period / 30, 3),
            week=round(spec.period * 7 / 30, 3),
            direct_interval=min(_EVERY_MINUTE, max(scrape, step / 5)),
            summed_interval=min(_READ_BY_NAME, step),
            liveness_interval=min(_EVERY_MINUTE, scrape),
            outlier_interval=max(scrape, outlier_window / 5),
            down_after=spec.down_after,
            cold_start=cold_start,
            warm_up=min(cold_start, max(step, spec.down_after)),
            second_start=max(spec.period / 720, 4 * cold_start),
            page_bridge=step,
        )

    @property
    def has_sidecar(self) -> bool:
        """Whether the rules read the series of sidecars, and not those of vLLM alone."""
        return self.spec.source is Source.SIDECAR

    @property
    def windows(self) -> tuple[float, ...]:
        return (*self.direct, *self.of_steps, *self.of_dozens)

    def fitted(self, slo: Slo, severity: Severity) -> tuple[Tier, ...]:
        """The tiers of an SLO that raise a page or a ticket."""
        return tuple(tier for tier in self.tiers_of[slo.name] if tier.severity is severity)

    def published(self, severity: Severity) -> tuple[Tier, ...]:
        return tuple(tier for tier in self.tiers if tier.severity is severity)

    def min_events(self, tier: Tier) -> int:
        """The events that the long window of the tier needs."""
        least = self.spec.alerting.min_events
        return least.page if tier.severity is Severity.PAGE else least.ticket
