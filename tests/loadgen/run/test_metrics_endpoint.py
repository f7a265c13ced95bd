"""The load generator's metrics, scraped from a real run as Prometheus does."""

import signal
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from exporters.vocabulary import signals
from exporters.vocabulary.signals import SEND_LATE
from exporters.vocabulary.slo_file import SHIPPED, load
from loadgen.results.record import ClientOutcome, read_records
from loadgen.results.summary import summarise_class
from tests.loadgen.load_process import finished_load, release, run_load, running_load, scripted_server, write_scenario
from tests.loadgen.load_series import SLOS, series_values
from tests.support.ports import free_port
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow


def scrape(port: int) -> list[Metric] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG) as response:
            return list(text_string_to_metric_families(response.read().decode()))
    except OSError:
        return None  # not listening yet, or no longer


def collect(port: int, pages: list[list[Metric]]) -> bool:
    """Scrape once more, if the port is open."""
    page = scrape(port)
    if page is not None:
        pages.append(page)
    return page is not None


def test_a_run_is_scraped_before_its_first_request_and_after_its_last(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", "refuse", rate=60, duration="1s"), tmp_path / "out"
    port, pages = free_port(), list[list[Metric]]()

    def state() -> list[float]:
        return list(series_values(pages[-1], signals.LOAD_RUN.name).values())

    def not_sent() -> float:
        return series_values(pages[-1], signals.LOAD_ENDED.name)["siso", ClientOutcome.NOT_SENT]

    def scraped(condition: Callable[[], bool]) -> bool:
        return wait_until(lambda: collect(port, pages) and condition())

    flags = ("--metrics", f"127.0.0.1:{port}", "--max-open", "3")
    with scripted_server("--hold") as target, running_load(path, target, out, *flags) as process:
        assert scraped(lambda: state() == [1] and not_sent() > 0)  # three are held open, so the fourth is not sent
        release(target)  # before this the run cannot end
        assert scraped(lambda: state() == [0])
        process.communicate(timeout=HANG)
    assert process.returncode == 0
    records = read_records(out)

    first, last = pages[0], pages[-1]
    assert sum(series_values(first, signals.LOAD_SCHEDULED.name).values()) == 0
    assert series_values(first, signals.LOAD_RUN.name) == {}
    states = [state for page in pages for state in series_values(page, signals.LOAD_RUN.name).values()]
    assert states == sorted(states, reverse=True)
    assert (states[0], states[-1]) == (1, 0)

    outcomes = Counter(record.outcome for record in records)  # all are of one class, by their size
    ended = series_values(last, signals.LOAD_ENDED.name)
    assert ended == {key: outcomes[ClientOutcome(key[1])] if key[0] == "siso" else 0 for key in ended}
    assert outcomes[ClientOutcome.NOT_SENT] > 0
    sent = len(records) - outcomes[ClientOutcome.NOT_SENT]
    assert series_values(last, signals.LOAD_SCHEDULED.name)["siso",] == len(records)
    assert series_values(last, signals.LOAD_SENT.name)["siso",] == sent
    assert series_values(last, signals.LOAD_SEND_LAG.count)[()] == sent
    p99 = summarise_class("all", records).send_lag.p99
    assert p99 is not None
    late = sent - series_values(last, signals.LOAD_SEND_LAG.bucket)[f"{SEND_LATE:g}",]
    assert (late > sent / 100) == (p99 > SEND_LATE)


def test_a_run_that_is_not_scraped_waits_a_limited_time_and_starts(tmp_path: Path) -> None:
    path, slos = write_scenario(tmp_path, "siso", rate=20, duration="300ms"), tmp_path / "slos.yaml"
    slos.write_text(SLOS)
    flags = ("--slos", str(slos), "--metrics", f"127.0.0.1:{free_port()}", "--metrics-wait", "100ms")
    done = finished_load(path, *flags)
    assert (done.status, done.errors, done.run.ended) == (0, "", "completed")


def test_a_signal_ends_the_wait_for_the_last_scrape(tmp_path: Path) -> None:
    path, port = write_scenario(tmp_path, "siso", rate=20, duration="300ms"), free_port()
    flags = ("--metrics", f"127.0.0.1:{port}")
    with scripted_server() as target, running_load(path, target, tmp_path / "out", *flags) as process:
        assert process.stdout is not None
        assert wait_until(lambda: scrape(port) is not None)
        assert "completed" in process.stdout.readline()  # the report is complete, and there is no further scrape
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=load(SHIPPED).scrape_interval) == 0


def test_an_address_in_use_is_refused_before_any_load(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with scripted_server() as target:
        address = target.removeprefix("http://")
        process = run_load("mixed", target, out, "--metrics", address)
    assert (process.returncode, process.stdout, out.exists()) == (2, "", False)
    assert process.stderr == f"vllm-slo: --metrics {address}: cannot listen: address already in use\n"
