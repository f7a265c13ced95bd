"""The queries that Grafana sends when it opens a dashboard, and the series that they read, of any revision."""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from dashboards.live.reader import Check, QueryType, annotations_of, checks_of, panels_of, read_dashboards
from exporters.text.units import parse_duration
from tests.support.dashboard_queries import Series, series_in
from tests.support.promtool import ROOT

_VOCABULARY = """
import json
try:
    from exporters.vocabulary.signals import RECORDED, SIGNALS
except ImportError:  # a revision before the vocabulary had a folder
    from exporters.signals import RECORDED, SIGNALS
from tests.support.dashboard_queries import SERIES
series = {name: [sorted(each.labels), each.is_counter] for name, each in SERIES.items()}
bounds = {each.bucket: [*map(str, each.bounds), "+Inf"] for each in SIGNALS if each.bounds}
print(json.dumps([series, [each.name for each in RECORDED], bounds]))
"""


@dataclass(frozen=True, slots=True)
class FirstLoad:
    """The queries of one dashboard, and its default time range in seconds."""

    checks: tuple[Check, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Revision:
    """The dashboards of a revision, and the series of its exporters and rules."""

    loads: Mapping[str, FirstLoad]
    series: Mapping[str, Series]
    recorded: frozenset[str]
    bounds: Mapping[str, tuple[str, ...]]
    """The values of `le` of each histogram, by the name of its buckets."""

    def ages(self, instant: int) -> dict[str, int]:
        """The age in seconds of the oldest sample that is read of each series; `instant` is that of instant queries."""
        ages: dict[str, int] = {}
        for load in self.loads.values():
            for check in load.checks:
                is_long = check.query_type is QueryType.RANGE or "$__range" in check.expression
                back = load.seconds if is_long else instant
                names = (name for name in series_in(check.expression) if name in self.series)
                ages |= {name: max(back, ages.get(name, 0)) for name in names}
        return ages


def read_revision(tree: Path, options: Mapping[str, tuple[str, ...]], *, all_rows: bool = False) -> Revision:
    """The revision in a folder; `options` are the values of the variables by which panels repeat."""
    command = [sys.executable, "-c", _VOCABULARY]
    output = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE).stdout
    series, recorded, bounds = json.loads(output)
    dashboards = read_dashboards(tree / "dashboards" / "generated").values()
    return Revision(
        {
            each["title"]: FirstLoad(tuple(first_load(each, options, all_rows=all_rows)), default_range(each))
            for each in dashboards
        },
        {name: Series(frozenset(labels), is_counter) for name, (labels, is_counter) in series.items()},
        frozenset(recorded),
        {name: tuple(each) for name, each in bounds.items()},
    )


@contextmanager
def tree_of(revision: str) -> Iterator[Path]:
    """A folder with the files of a git revision."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(name, filter="data")
        yield Path(name)


def first_load(
    dashboard: Mapping[str, Any], options: Mapping[str, tuple[str, ...]], *, all_rows: bool = False
) -> Iterator[Check]:
    """Without disabled annotations; with collapsed rows if `all_rows`; a panel that repeats has a query per option."""
    annotations = [each for each in annotations_of(dashboard) if each.get("enable", True)]
    # a collapsed row contains its panels
    shown = panels_of(dashboard["panels"]) if all_rows else dashboard["panels"]
    panels = [each for each in shown if each.get("type") != "row"]
    repeats = {each["title"]: each["repeat"] for each in panels if each.get("repeat")}
    for check in checks_of({**dashboard, "annotations": {"list": annotations}, "panels": panels}):
        if variable := repeats.get(check.panel):
            for option in options[variable]:
                yield replace(check, expression=re.sub(rf"\${variable}\b", option, check.expression))
        else:
            yield check


def default_range(dashboard: Mapping[str, Any]) -> int:
    """The default time range of a dashboard in seconds."""
    return round(parse_duration(dashboard["time"]["from"].removeprefix("now-")))
