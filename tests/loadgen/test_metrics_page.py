"""The series of the load generator: counted by law, and read from a real run as Prometheus would."""

import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from exporters import signals
from exporters.signals import LOAD_SIGNALS, SEND_LATE
from exporters.slos import SHIPPED, load, loads
from loadgen.load_metrics import LoadSeries
from loadgen.request_plan import CHAT, Planned
from loadgen.request_record import Fate, read_records, read_run
from loadgen.summary import figures
from tests.loadgen.test_load_run import CLI, ROOT, scripted, write
from tests.support.ports import free_port

NAMES = load(SHIPPED).class_names
OFTEN = """
version: 1
period: 30d
scrape_interval: 200ms
classes: [{name: short, prompt_tokens: "<512"}]
slos: [{name: up, classes: [short], signal: availability, objective: 99%}]
"""


def planned(name: str, prompt_tokens: int = 10) -> Planned:
    return Planned(0, 0.0, "one", name, True, CHAT, prompt_tokens, 10, "")


def values(families: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    """By the values of the labels, in the order in which they are declared."""
    (signal,) = [signal for signal in LOAD_SIGNALS if name in {signal.name, signal.bucket, signal.count}]
    labels = (*signal.labels, "le") if name == signal.bucket else signal.labels
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in samples}


def of(series: LoadSeries, name: str) -> dict[tuple[str, ...], float]:
    return values(list(series.collect()), name)


def read(port: int) -> list[Metric] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return list(text_string_to_metric_families(answer.read().decode()))
    except urllib.error.URLError:
        return None  # not open yet, or no longer


def test_every_combination_is_there_at_0_before_the_first_request() -> None:
    series = LoadSeries(load(SHIPPED))
    assert of(series, signals.LOAD_SCHEDULED.name) == {(name,): 0 for name in NAMES}
    assert of(series, signals.LOAD_SENT.name) == {(name,): 0 for name in NAMES}
    assert of(series, signals.LOAD_ENDED.name) == {(name, fate): 0 for name in NAMES for fate in Fate}
    assert of(series, signals.LOAD_SEND_LAG.count) == {(): 0}
    assert of(series, signals.LOAD_RUN.name) == {}


def test_only_what_is_declared_is_exposed() -> None:
    registry = CollectorRegistry()
    registry.register(LoadSeries(load(SHIPPED)))
    exposed = {family.name: (family.type, family.documentation) for family in registry.collect()}
    assert exposed == {
        signal.name.removesuffix("_total"): (signal.kind.value, signal.help) for signal in signals.LOAD_SIGNALS
    }


@pytest.mark.parametrize(
    "request_, name",
    [
        pytest.param(planned("short", prompt_tokens=1000), "short", id="a class of the SLO file"),
        pytest.param(planned("of my own", prompt_tokens=10), "short", id="any other by its shape, as at the sidecar"),
        pytest.param(planned("of my own", prompt_tokens=1000), "other", id="no shape fits"),
    ],
)
def test_a_class_is_that_of_the_slo_file_however_a_scenario_calls_it(request_: Planned, name: str) -> None:
    series = LoadSeries(loads(OFTEN))
    series.scheduled(request_)
    series.sent(request_, 0.001)
    series.ended(request_, Fate.OK)
    for counter, key in (
        (signals.LOAD_SCHEDULED, (name,)),
        (signals.LOAD_SENT, (name,)),
        (signals.LOAD_ENDED, (name, "ok")),
    ):
        counted = of(series, counter.name)
        assert counted[key] == sum(counted.values()) == 1


def test_a_lag_counts_as_late_exactly_where_the_report_warns() -> None:
    series = LoadSeries(load(SHIPPED))
    for lag in (0.0, SEND_LATE, SEND_LATE + 1e-6, 11.0):
        series.sent(planned("siso"), lag)
    counted = of(series, signals.LOAD_SEND_LAG.bucket)
    assert (counted["0.05",], counted["10.0",], counted["+Inf",]) == (2, 3, 4)


def test_a_run_is_1_while_it_lasts_and_only_the_last_one_is_kept() -> None:
    series = LoadSeries(load(SHIPPED))
    series.begin("mixed", 0.0)
    assert of(series, signals.LOAD_RUN.name) == {("1970-01-01T00:00:00Z", "mixed"): 1}
    series.end()
    assert of(series, signals.LOAD_RUN.name) == {("1970-01-01T00:00:00Z", "mixed"): 0}
    series.begin("demo", 3600.0)
    assert of(series, signals.LOAD_RUN.name) == {("1970-01-01T01:00:00Z", "demo"): 1}


def test_a_run_begins_and_ends_with_a_reading_and_the_last_says_what_the_records_say(tmp_path: Path) -> None:
    path, out, port = write(tmp_path, "siso", "refuse", rate=60, duration="1s"), tmp_path / "out", free_port()
    pages: list[list[Metric]] = []
    with scripted() as target:
        words = ("--target", target, "--out", str(out), "--metrics", f"127.0.0.1:{port}", "--max-open", "3")
        with subprocess.Popen([*CLI, "run", str(path), *words], cwd=ROOT, stdout=subprocess.DEVNULL) as run:
            while run.poll() is None:
                if (page := read(port)) is not None:
                    pages.append(page)
                time.sleep(0.02)
    assert run.returncode == 0
    records = read_records(out)

    first, *_, last = pages
    assert sum(values(first, signals.LOAD_SCHEDULED.name).values()) == 0
    assert values(first, signals.LOAD_RUN.name) == {}
    states = [state for page in pages for state in values(page, signals.LOAD_RUN.name).values()]
    assert states == sorted(states, reverse=True)
    assert (states[0], states[-1]) == (1, 0)

    fates = Counter(record.outcome for record in records)  # all are of one class: that of their shape
    ended = values(last, signals.LOAD_ENDED.name)
    assert ended == {key: fates[Fate(key[1])] if key[0] == "siso" else 0 for key in ended}
    assert fates[Fate.NOT_SENT] > 0
    sent = len(records) - fates[Fate.NOT_SENT]
    assert values(last, signals.LOAD_SCHEDULED.name)["siso",] == len(records)
    assert values(last, signals.LOAD_SENT.name)["siso",] == values(last, signals.LOAD_SEND_LAG.count)[()] == sent
    p99 = figures("all", records).send_lag.p99
    assert p99 is not None
    late = sent - values(last, signals.LOAD_SEND_LAG.bucket)[f"{SEND_LATE:g}",]
    assert (late > sent / 100) == (p99 > SEND_LATE)


def test_a_run_that_nobody_reads_waits_a_little_and_goes_on(tmp_path: Path) -> None:
    path, out, slos = write(tmp_path, "siso", rate=20, duration="300ms"), tmp_path / "out", tmp_path / "slos.yaml"
    slos.write_text(OFTEN)
    with scripted() as target:
        words = ("--target", target, "--out", str(out), "--slos", str(slos), "--metrics", f"127.0.0.1:{free_port()}")
        done = subprocess.run(
            [*CLI, "run", str(path), *words], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert read_run(out).ended == "completed"


def test_a_signal_ends_the_wait_for_the_last_reading(tmp_path: Path) -> None:
    path, out, port = write(tmp_path, "siso", rate=20, duration="300ms"), tmp_path / "out", free_port()
    with scripted() as target:
        words = ("--target", target, "--out", str(out), "--metrics", f"127.0.0.1:{port}")
        with subprocess.Popen([*CLI, "run", str(path), *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            while read(port) is None:
                time.sleep(0.02)
            assert "completed" in run.stdout.readline()  # the report is there, and nobody will read the page again
            run.send_signal(signal.SIGTERM)
            assert run.wait(timeout=load(SHIPPED).scrape_interval) == 0


def test_an_address_that_is_taken_is_refused_before_any_load(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with scripted() as target:
        where = target.removeprefix("http://")
        words = ("--target", target, "--out", str(out), "--metrics", where)
        done = subprocess.run([*CLI, "run", "mixed", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, out.exists()) == (2, "", False)
    assert done.stderr == f"vllm-slo: --metrics {where}: cannot listen there: address already in use\n"
