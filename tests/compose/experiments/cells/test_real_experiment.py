"""An experiment with real processes: simulator, sidecar and load generator."""

import subprocess
import sys
import urllib.request
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from compose.cli import main
from compose.experiments.grades.criteria import Grade, graded
from compose.experiments.grades.measured_cells import read_measured
from compose.experiments.setup.cell_store import CellStatus, read_experiment
from exporters.vocabulary import signals
from loadgen.results.record import ClientOutcome, read_records, read_run
from loadgen.schedule.requests import CHAT
from tests.compose.experiments.toy_experiment import LOAD, write_experiment
from tests.support.ports import free_port
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow

COUNTS = (signals.LOAD_SCHEDULED.name, signals.LOAD_ENDED.name, signals.LOAD_GOOD.name)
ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-c", "import sys; from compose.cli import main; sys.exit(main())", "experiment", "run"]


SHORT = LOAD.replace("duration: 5s, rate: 10", "duration: 1s, rate: 20")


def run(path: Path, out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, str(path), "--out", str(out), *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * HANG, check=False)


@dataclass(frozen=True)
class Scraped:
    """What the load generators and sidecars of an experiment have exposed.

    `runs` has the labels of each run, `last` the last counts of each configuration, and `sidecars` the number of runs
    that had begun when a sidecar was scraped.
    """

    out: Path
    printed: str
    runs: set[tuple[str, ...]]
    last: dict[str, dict[str, float]]
    sidecars: set[int]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = "max_concurrency: 32\nwarm_up: 2\n"
    return write_experiment(tmp_path_factory.mktemp("real"), load=SHORT, more=more)


@pytest.fixture(scope="module")
def scraped(path: Path) -> Scraped:
    """As Prometheus: both addresses, again and again, whichever process of which cell listens there."""
    load, sidecar = free_port(), free_port()
    found = Scraped(path.parent / "real", "", set(), {}, set())
    flags = ("--metrics", f"127.0.0.1:{load}", "--sidecar-metrics", f"127.0.0.1:{sidecar}")

    def until_its_end() -> bool:
        page = metrics(load)
        for sample in page.get(signals.LOAD_RUN.name, ()):
            found.runs.add(tuple(sample.labels[name] for name in ("scenario", "experiment", "configuration")))
        for name in COUNTS:
            for sample in page.get(name, ()):
                counts = found.last.setdefault(sample.labels["configuration"], {})
                counts[f"{name} {sample.labels['class']} {sample.labels.get('outcome')}"] = sample.value
        if scrape(sidecar):
            found.sidecars.add(len(found.runs))
        return process.poll() is not None

    command = [*COMMAND, str(path), "--out", str(found.out), *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert wait_until(until_its_end, 4 * HANG)
        assert process.stdout is not None
        return replace(found, printed=process.stdout.read())


def test_a_cell_has_the_requests_of_virtual_time_and_what_the_engine_reported(scraped: Scraped, path: Path) -> None:
    assert main(["experiment", "run", str(path), "--virtual", "--out", str(path.parent / "virtual")]) == 0
    first, *lines = scraped.printed.splitlines()
    assert first == (
        "small: 2 cells with 2s of load; with the requests that are open at the end up to 42s, and engine starts"
    )
    assert [line.partition(": ")[2].partition(", ")[0] for line in lines] == ["base", "prefix"]
    _, virtual = read_experiment(path.parent / "virtual")
    _, real = read_experiment(scraped.out)
    assert [stored.cell.configuration for stored in real] == ["base", "prefix"]
    for here, there in zip(real, virtual, strict=True):
        assert here.cell.status is not CellStatus.FAILED, here.cell.reason  # invalid where the machine is too slow
        assert read_run(here.folder).schedule == read_run(there.folder).schedule
        records = {record.number: record for record in read_records(here.folder)}
        wanted = {record.number: record for record in read_records(there.folder)}
        assert {number: record.prompt_tokens for number, record in records.items()} == {
            number: record.prompt_tokens for number, record in wanted.items()
        }
        assert {record.outcome for record in records.values()} == {ClientOutcome.OK}
        reported, modelled = here.cell.engine, there.cell.engine
        assert reported.kv_capacity_tokens == modelled.kv_capacity_tokens
        assert reported.settings["enable_prefix_caching"] == modelled.settings["enable_prefix_caching"]
    assert not real[0].cell.engine.prefix_hit_tokens
    assert real[1].cell.engine.prefix_hit_tokens


def test_prometheus_can_scrape_each_cell_with_its_configuration(scraped: Scraped) -> None:
    assert scraped.runs == {("small", "small", "base"), ("small", "small", "prefix")}
    assert scraped.sidecars == {0, 1, 2}  # before, in and after the first run
    _, cells = read_experiment(scraped.out)
    for stored in cells:
        run, records = read_run(stored.folder), read_records(stored.folder)
        name = stored.cell.configuration
        assert (run.experiment, run.configuration) == ("small", name)
        last = scraped.last[name]
        totals = [sum(count for key, count in last.items() if key.startswith(name)) for name in COUNTS]
        assert totals == [len(records), len(records), sum(record.good is True for record in records)]


def scrape(port: int) -> str:
    """What a process exposes; nothing while none listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG) as response:
            text: str = response.read().decode()
            return text
    except (OSError, HTTPException):
        return ""


def metrics(port: int) -> dict[str, list[Sample]]:
    """The samples of a scrape by name."""
    found: dict[str, list[Sample]] = {}
    for sample in (sample for family in text_string_to_metric_families(scrape(port)) for sample in family.samples):
        found.setdefault(sample.name, []).append(sample)
    return found


def test_virtual_time_serves_no_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--virtual", "--metrics", "127.0.0.1:9465", "--out", str(tmp_path / "out"))
    assert main(["experiment", "run", str(write_experiment(tmp_path)), *flags]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --virtual: serves no metrics, because it has no processes; remove --metrics, --sidecar-metrics\n"
    )


def test_an_engine_with_another_setting_makes_the_cell_invalid(tmp_path: Path) -> None:
    """The command of the user sets the flag again, after those of the configuration."""
    engine = 'sh -c \'exec "$0" -c "import sys; from compose.cli import main; sys.exit(main())" simulate'
    engine += f' --preset toy --listen 127.0.0.1:{{port}} "$@" --enable-prefix-caching\' {sys.executable}'
    experiment = write_experiment(tmp_path, load=SHORT)
    result = run(experiment, tmp_path / "out", "--engine", engine, "--configurations", "base")
    assert result.returncode == 1
    _, (base,) = read_experiment(tmp_path / "out")
    assert (base.cell.status, base.cell.reason) == (
        CellStatus.INVALID,
        "enable-prefix-caching is True in the engine, not false",
    )


def test_an_engine_that_does_not_start_fails_its_cell_with_its_last_lines(tmp_path: Path) -> None:
    engine = f"{sys.executable} -c 'raise SystemExit(\"no GPU on port {{port}}\")'"
    result = run(write_experiment(tmp_path), tmp_path / "out", "--engine", engine)
    assert result.returncode == 1
    _, cells = read_experiment(tmp_path / "out")
    for stored in cells:
        assert stored.cell.status is CellStatus.FAILED
        log = stored.folder / "logs" / "engine.log"
        assert stored.cell.reason == (
            f"engine exited with status 1; last lines of {log}:\n    {log.read_text().strip()}"
        )
    assert msgspec.json.decode((tmp_path / "out" / "experiment.json").read_bytes())["engine"] == engine


@pytest.mark.long
def test_a_search_in_real_time_measures_each_rate_once_and_is_graded(tmp_path: Path) -> None:
    """The SLO is met at every rate, so the search ends above its highest one."""
    more = """\
find_max: {lowest: 36, highest: 64, requests: 60, resolution: 1}
slos:
  version: 1
  period: 30d
  classes: [{name: short}, {name: long}]
  slos: [{name: availability, classes: [short, long], signal: availability, objective: 80%}]
"""
    path, out = write_experiment(tmp_path, more=more), tmp_path / "out"
    result = run(path, out, "--configurations", "prefix")
    _, cells = read_experiment(out)
    assert [stored.cell.status for stored in cells].count(CellStatus.FAILED) == 0, result.stdout
    assert cells[0].cell.rate == 48
    assert cells[0].cell.engine_start
    if result.returncode == 0:  # a cell is invalid where the machine is too slow
        assert [stored.cell.rate for stored in cells] == [48, 64]
        answer = "prefix, repeat 1: largest rate: at or above the highest rate: 64 requests/s is met"
        assert result.stdout.splitlines()[-1] == f"search 1 of 1: {answer}"
    again = run(path, out, "--configurations", "prefix")
    assert again.stdout.count("kept from an earlier run") == len(cells)
    found = {each.item: each for each in graded(read_measured([out]), None)}
    if result.returncode == 0:
        chat = sum(record.endpoint == CHAT for stored in cells for record in read_records(stored.folder))
        assert found["API compatibility"].grade is Grade.PASS
        assert found["API compatibility"].evidence.startswith(f"{chat} of {chat} calls of POST /v1/chat/completions")
        assert found["Observability"].grade is Grade.PASS
