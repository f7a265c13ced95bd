"""`python -m tests.alerts.rules.side_by_side`: one rule file and the same scrapes in Prometheus and in VictoriaMetrics.

Incidents, maintenance and quiet clusters of ten sidecars each are replayed to Prometheus, on a period of two days. It
evaluates the rules, and sends what it has scraped to VictoriaMetrics, where vmalert evaluates the same file. Both send
their alerts to receivers of their own.
"""

import argparse
import json
import math
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode

from alerts.plan import Plan
from alerts.rule_file import render
from compose.lab.ports import HOST
from compose.programs.tools import find_tools
from exporters.text.units import number, spell_duration
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load
from tests.alerts.alertmanager.receiver_servers import HttpSink, http_sink
from tests.alerts.incident_series import AFTER, BEFORE, DURING, incidents, judged, running
from tests.support.engine_states import samples, with_states
from tests.support.prometheus_server import prometheus_server
from tests.support.promtool import Pace
from tests.support.victoriametrics import victoria_metrics, vmalert
from tests.support.waiting import wait_until

STEPS = BEFORE + DURING + AFTER + 4
"""The last ones without requests: both have counted all."""
QUIET = 10
"""Clusters without a fault."""
SIDECARS = 10
"""Those of a quiet cluster."""
SCRAPE = 2.0
VISIBLE = 3.0
"""Seconds until VictoriaMetrics shows what vmalert has written: both flush once a second."""

Labels = frozenset[tuple[str, str]]


def scaled(scrape: float) -> SloFile:
    """The shipped SLO file with a step of five scrapes, for clusters."""
    spec = replace(load(SHIPPED), scrape_interval=scrape, period=5 * scrape * 8640, group_by=("cluster",))
    return replace(spec, alerting=replace(spec.alerting, per_tenant=True))


def fleet(pace: Pace) -> dict[str, str]:
    """The series of all clusters, in the notation of promtool."""
    clusters = incidents(pace)
    for cluster in range(QUIET):
        each: dict[str, str] = {}
        for sidecar in range(SIDECARS):
            name = f"s{sidecar}:1"
            each |= running(pace, name) | judged(pace, name, small=0, big=0)
        clusters[f"quiet-{cluster}"] = each
    return {
        name.replace("{", f'{{cluster="{cluster}",', 1): values
        for cluster, each in clusters.items()
        for name, values in with_states(pace.spec, each).items()
    }


@dataclass
class Replay:
    """Exposes the sample of each series that is due; past the last one, the last."""

    series: Mapping[str, Sequence[float | None]]
    scrape: float
    started: float = field(default_factory=time.time)

    @classmethod
    def of(cls, pace: Pace) -> "Replay":
        return cls({name: tuple(samples(values)) for name, values in fleet(pace).items()}, pace.spec.scrape_interval)

    def page(self) -> str:
        at = int((time.time() - self.started) / self.scrape)
        due = ((name, values[min(at, len(values) - 1)]) for name, values in self.series.items())
        return "".join(f"{name} {number(value)}\n" for name, value in due if value is not None)


@contextmanager
def exposed(replay: Replay) -> Iterator[int]:
    """The port at which each GET has the series of now."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = replay.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def prometheus(
    folder: Path, spec: SloFile, port: int, rules: Path | None, storage: str, notifier: HttpSink, replica: str
) -> Iterator[str]:
    """Scrapes the port, and writes its samples to a storage without the label of the replica."""
    own = folder / f"prometheus-{replica}"
    own.mkdir()
    sent = [
        {"source_labels": ["__name__"], "regex": "(llm_[a-z0-9_]+|up)", "action": "keep"},
        {"regex": "replica", "action": "labeldrop"},
    ]
    every = spell_duration(spec.scrape_interval)
    config = {
        "global": {"external_labels": {"replica": replica}, "scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [
            {"job_name": "replay", "honor_labels": True, "static_configs": [{"targets": [f"{HOST}:{port}"]}]}
        ],
        "remote_write": [
            {
                "url": f"{storage}/api/v1/write",
                "write_relabel_configs": sent,
                "queue_config": {"batch_send_deadline": "200ms"},
            }
        ],
        "rule_files": [] if rules is None else [str(rules)],
        "alerting": {
            "alert_relabel_configs": [{"regex": "replica", "action": "labeldrop"}],
            "alertmanagers": [{"static_configs": [{"targets": [f"{HOST}:{notifier.port}"]}]}],
        },
    }
    with prometheus_server(find_tools(), own, config) as (_, url):
        yield url


@dataclass(frozen=True)
class Outcome:
    """What both have notified, in seconds of the replay, and the recorded counts of the period at its end."""

    notified: tuple[dict[Labels, tuple[float, float]], dict[Labels, tuple[float, float]]]
    values: tuple[dict[Labels, float], dict[Labels, float]]
    duplicates: int
    """Labels of series that vmalert added because the result of a rule had another value."""


def run(scrape: float, servers: int, steps: float = STEPS) -> Outcome:
    """Replays the fleet; two servers both write to VictoriaMetrics, and only the first one evaluates the rules."""
    spec = scaled(scrape)
    pace = Pace(spec)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rules = folder / "rules.yaml"
        rules.write_text(render(spec))
        ours, theirs = (stack.enter_context(http_sink()) for _ in range(2))
        deduplicated = f"-dedup.minScrapeInterval={spell_duration(scrape)}"
        latency = "-search.latencyOffset=1s"
        _, storage = stack.enter_context(victoria_metrics(folder, latency, *[deduplicated] * (servers > 1)))
        replay = Replay.of(pace)
        port = stack.enter_context(exposed(replay))
        urls = [
            stack.enter_context(
                prometheus(folder, spec, port, None if number else rules, storage, ours, replica=f"r{number}")
            )
            for number in range(servers)
        ]
        quick = ("-rule.evalDelay=1s", "-remoteWrite.flushInterval=200ms", "-rule.resendDelay=1s")
        stack.enter_context(vmalert(folder, rules, storage, theirs.url(""), *quick))
        wait_until(lambda: time.time() > replay.started + pace.seconds(steps), pace.seconds(steps) + 60)
        counts = f'{{__name__=~"llm_slo:(bad_events|events):increase",window="{spell_duration(spec.period)}"}}'
        recorded = f"{counts} or llm_slo:error_budget:remaining_ratio"
        values = (_values(urls[0], recorded), _values(storage, recorded))
        duplicates = len(_values(storage, '{exported_window!=""}'))
        return Outcome((_notified(ours, replay), _notified(theirs, replay)), values, duplicates)


def _notified(sink: HttpSink, replay: Replay) -> dict[Labels, tuple[float, float]]:
    """When each page and ticket was notified, and when the end of it, in seconds."""
    times: dict[Labels, tuple[float, float]] = {}
    for delivery in sink.arrived:
        for each in delivery.body:
            labels, at = frozenset(each["labels"].items()), delivery.at - replay.started
            if ("severity", "none") in labels:
                continue
            fires, ends = times.get(labels, (at, math.inf))
            times[labels] = fires, min(ends, at) if _has_ended(each["endsAt"], delivery.at) else math.inf
    return times


def _has_ended(stamp: str, now: float) -> bool:
    """Both state a time minutes in the future while an alert fires."""
    seconds = time.mktime(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    return seconds <= now + 1


def _values(url: str, query: str) -> dict[Labels, float]:
    with urllib.request.urlopen(f"{url}/api/v1/query?{urlencode({'query': query})}") as response:
        result = json.load(response)["data"]["result"]
    return {frozenset(each["metric"].items()): float(each["value"][1]) for each in result}


def differences(outcome: Outcome) -> dict[str, tuple[int, float, float]]:
    """By name: how many both have, and the median and the largest difference; those of counts are relative."""
    by_name: dict[str, list[float]] = {}
    prometheus_values, victoria_values = outcome.values
    for labels in prometheus_values.keys() & victoria_values.keys():
        ours, theirs, name = prometheus_values[labels], victoria_values[labels], dict(labels)["__name__"]
        by_name.setdefault(name, []).append(abs(theirs - ours) / max(abs(ours), 1.0))
    return {name: (len(all_), sorted(all_)[len(all_) // 2], max(all_)) for name, all_ in sorted(by_name.items())}


def stated_delay(spec: SloFile) -> float:
    """Seconds by which vmalert may be late: an evaluation for each layer, until it is visible."""
    plan = Plan.of(spec)
    return plan.step + 2 * plan.summed_interval + 2 * plan.direct_interval + 5 * VISIBLE


def _interval(fires: float, ends: float) -> str:
    return f"{fires:.0f} s on" if ends == math.inf else f"{fires:.0f} to {ends:.0f} s"


def decisive(notified: Mapping[Labels, tuple[float, float]]) -> dict[Labels, float]:
    """When each page was notified, and each ticket that did not give way to a page: a later one may not come at all."""
    pages = {_without_severity(labels) for labels in notified if ("severity", "page") in labels}
    return {
        labels: fires
        for labels, (fires, _) in notified.items()
        if ("severity", "page") in labels or _without_severity(labels) not in pages
    }


def _without_severity(labels: Labels) -> Labels:
    return frozenset(each for each in labels if each[0] != "severity")


def faults(outcome: Outcome, delay: float, scrape: float) -> Iterator[str]:
    """What differs by more than the documentation says: an alert, its time, one of a quiet cluster, a duplicate."""
    expected, notified = map(decisive, outcome.notified)
    yield from (f"only in one of both: {dict(labels)}" for labels in expected.keys() ^ notified.keys())
    for labels in expected.keys() & notified.keys():
        if not -2 * scrape <= notified[labels] - expected[labels] <= delay:
            yield f"{notified[labels] - expected[labels]:.0f} s later: {dict(labels)}"
    yield from (f"quiet: {dict(labels)}" for labels in notified if dict(labels)["cluster"].startswith("quiet"))
    if outcome.duplicates:
        yield f"{outcome.duplicates} duplicates"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrape", type=float, default=SCRAPE, help="seconds between scrapes; a step has five")
    parser.add_argument("--servers", type=int, default=1, choices=(1, 2), help="Prometheus servers that write")
    options = parser.parse_args()
    outcome = run(options.scrape, options.servers)
    in_prometheus, in_vmalert = outcome.notified
    print("| cluster | alert | of | Prometheus | vmalert |\n|---|---|---|---|---|")
    for labels in sorted(in_prometheus.keys() | in_vmalert.keys(), key=sorted):
        of = dict(labels)
        who = " ".join(of[name] for name in ("class", "tenant", "slo", "instance") if name in of)
        times = ("none" if labels not in each else _interval(*each[labels]) for each in (in_prometheus, in_vmalert))
        print(f"| {of.get('cluster', '')} | {of['alertname']}, {of['severity']} | {who} | {' | '.join(times)} |")
    print("\n| series | in both | median difference | largest |\n|---|---|---|---|")
    for kind, (count, median, largest) in differences(outcome).items():
        print(f"| {kind} | {count} | {100 * median:.2f} % | {100 * largest:.2f} % |")
    delay = stated_delay(scaled(options.scrape))
    found = [*faults(outcome, delay, options.scrape)]
    print(f"\nstated delay: {delay:.0f} s; faults: {len(found)}", *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
