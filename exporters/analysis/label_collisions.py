"""Finds labels of our series that Prometheus has renamed to `exported_*`, because targets have them too."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporters.analysis.prometheus_api import Prometheus, QueryError
from exporters.vocabulary.signals import Label

PREFIX = "exported_"
_NAME = '__name__=~"llm_[a-z0-9_]+"'
"""Our scraped series; recorded ones, which have a colon in their names, are made from them."""

LABELS_PATH = "/api/v1/labels"
COST = "rules and boards read the value of the target in its place, and miss or mix series"

_SCRAPED = frozenset({Label.JOB, Label.INSTANCE, "namespace", "pod", "service", "container"})
"""Labels of targets that the sidecar does not write: Prometheus or prometheus-operator sets them."""


@dataclass(frozen=True, slots=True)
class Collision:
    """A label that the targets of some jobs have as well as their series."""

    label: str
    series: Sequence[str]
    jobs: Sequence[str]

    @property
    def found(self) -> str:
        more = f" and {len(self.series) - 1} more series" if len(self.series) > 1 else ""
        return (
            f"{PREFIX}{self.label} on {self.series[0]}{more} of the job {', '.join(self.jobs)}: the scraped page and "
            f"the target both have the label {self.label}, and with honor_labels: false the target's keeps the name"
        )

    @property
    def fix(self) -> str:
        honor = "set honor_labels: true for the job (honorLabels in a PodMonitor or ServiceMonitor)"
        if self.label == "endpoint":
            return "update the sidecars: this version writes route, earlier ones endpoint; then render rules and boards"
        if self.label in _SCRAPED:
            return (
                f"scrape the sidecars themselves; if the page is of a federation, a collector or a Pushgateway, {honor}"
            )
        return (
            f"rename or remove the target label {self.label} (labels, relabel_configs, podTargetLabels, targetLabels), "
            f"or {honor}"
        )


def collisions(prometheus: Prometheus, start: float, end: float) -> list[Collision]:
    """The collisions at `end`, among the labels that our series have had since `start`; times in unix seconds.

    Raises:
        PrometheusError: the server cannot be read, or does not list labels.
    """
    times = {"start": f"{start:.3f}", "end": f"{end:.3f}"}
    names = prometheus.get(LABELS_PATH, {"match[]": f"{{{_NAME}}}", **times})
    if not isinstance(names, list):
        raise QueryError("the response is not from Prometheus")
    found = (_collision(prometheus, name, end) for name in sorted(map(str, names)) if name.startswith(PREFIX))
    return [each for each in found if each is not None]


def _collision(prometheus: Prometheus, name: str, at: float) -> Collision | None:
    """The collision of a label; None if only older series have it."""
    samples = prometheus.query(f'count by (__name__, job) ({{{_NAME},{name}!=""}})', at)
    series = sorted({each.labels.get("__name__", "") for each in samples})
    jobs = sorted({each.labels.get(Label.JOB, "") for each in samples})
    return Collision(name.removeprefix(PREFIX), series, jobs) if samples else None
