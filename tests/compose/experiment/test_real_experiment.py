"""An experiment with real processes: simulator, sidecar and load generator."""

import subprocess
import sys
import urllib.request
from http.client import HTTPException
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from compose.experiment.cell_store import CellStatus, read_experiment
from compose.experiment.lab_criteria import Grade, graded
from compose.experiment.measured_cells import read_measured
from exporters import signals
from loadgen.request_plan import CHAT
from loadgen.request_record import ClientOutcome, read_records, read_run
from tests.compose.experiment.toy_experiment import write_experiment
from tests.support.ports import free_port
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", "import sys; from compose.cli import main; sys.exit(main())", "experiment", "run"]


def run(path: Path, out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, str(path), "--out", str(out), *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * HANG, check=False)


def test_a_cell_has_the_requests_of_virtual_time_and_what_the_engine_reported(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, more="max_concurrency: 32\nwarm_up: 2\n")
    assert run(path, tmp_path / "virtual", "--virtual").returncode == 0
    result = run(path, tmp_path / "real")
    first, *lines = result.stdout.splitlines()
    assert first == (
        "small: 2 cells with 10s of load; with the requests that are open at the end up to 50s, and engine starts"
    )
    assert [line.partition(": ")[2].partition(", ")[0] for line in lines] == ["base", "prefix"]
    _, virtual = read_experiment(tmp_path / "virtual")
    _, real = read_experiment(tmp_path / "real")
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


def test_prometheus_can_scrape_each_cell_with_its_configuration(tmp_path: Path) -> None:
    """As Prometheus: both addresses, again and again, whichever process of which cell listens there."""
    load, sidecar = free_port(), free_port()
    flags = ("--metrics", f"127.0.0.1:{load}", "--sidecar-metrics", f"127.0.0.1:{sidecar}")
    command = [*COMMAND, str(write_experiment(tmp_path)), "--out", str(tmp_path / "out"), *flags]
    info, last = set[tuple[str, ...]](), dict[str, dict[str, float]]()

    def scraped_until_its_end() -> bool:
        page = metrics(load)
        for sample in page.get(signals.LOAD_RUN.name, ()):
            info.add(tuple(sample.labels[name] for name in ("scenario", "experiment", "configuration")))
        for name in (signals.LOAD_SCHEDULED.name, signals.LOAD_ENDED.name, signals.LOAD_GOOD.name):
            for sample in page.get(name, ()):
                counts = last.setdefault(sample.labels["configuration"], {})
                counts[f"{name} {sample.labels['class']} {sample.labels.get('outcome')}"] = sample.value
        if metrics(sidecar):
            sidecars.add(len(info))
        return process.poll() is not None

    sidecars = set[int]()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        assert wait_until(scraped_until_its_end, 4 * HANG)
    assert info == {("small", "small", "base"), ("small", "small", "prefix")}
    assert sidecars == {0, 1, 2}  # before, in and after the first run
    _, cells = read_experiment(tmp_path / "out")
    for stored in cells:
        run, records = read_run(stored.folder), read_records(stored.folder)
        name = stored.cell.configuration
        assert (run.experiment, run.configuration) == ("small", name)
        totals = {
            signal.name: sum(count for key, count in last[name].items() if key.startswith(signal.name))
            for signal in (signals.LOAD_SCHEDULED, signals.LOAD_ENDED, signals.LOAD_GOOD)
        }
        assert list(totals.values()) == [len(records), len(records), sum(record.good is True for record in records)]


def metrics(port: int) -> dict[str, list[Sample]]:
    """The samples of a scrape by name; none while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG) as response:
            families = list(text_string_to_metric_families(response.read().decode()))
    except (OSError, HTTPException):
        return {}
    found: dict[str, list[Sample]] = {}
    for sample in (sample for family in families for sample in family.samples):
        found.setdefault(sample.name, []).append(sample)
    return found


def test_virtual_time_serves_no_metrics(tmp_path: Path) -> None:
    result = run(write_experiment(tmp_path), tmp_path / "out", "--virtual", "--metrics", "127.0.0.1:9465")
    assert (result.returncode, result.stderr) == (
        2,
        ("vllm-slo: --virtual: serves no metrics, because it has no processes; remove --metrics, --sidecar-metrics\n"),
    )


def test_an_engine_with_another_setting_makes_the_cell_invalid(tmp_path: Path) -> None:
    """The command of the user sets the flag again, after those of the configuration."""
    engine = 'sh -c \'exec "$0" -c "import sys; from compose.cli import main; sys.exit(main())" simulate'
    engine += f' --preset toy --listen 127.0.0.1:{{port}} "$@" --enable-prefix-caching\' {sys.executable}'
    result = run(write_experiment(tmp_path), tmp_path / "out", "--engine", engine)
    assert result.returncode == 1
    _, (base, _) = read_experiment(tmp_path / "out")
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


def test_a_search_in_real_time_measures_each_rate_once_and_is_graded(tmp_path: Path) -> None:
    """The SLO is met at every rate, so the search ends above its highest one."""
    more = """\
find_max: {lowest: 9, highest: 16, requests: 60, resolution: 1}
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
    assert cells[0].cell.rate == 12
    assert cells[0].cell.engine_start
    if result.returncode == 0:  # a cell is invalid where the machine is too slow
        assert [stored.cell.rate for stored in cells] == [12, 16]
        answer = "prefix, repeat 1: largest rate: at or above the highest rate: 16 requests/s is met"
        assert result.stdout.splitlines()[-1] == f"search 1 of 1: {answer}"
    again = run(path, out, "--configurations", "prefix")
    assert again.stdout.count("kept from an earlier run") == len(cells)
    found = {each.item: each for each in graded(read_measured([out]), None)}
    if result.returncode == 0:
        chat = sum(record.endpoint == CHAT for stored in cells for record in read_records(stored.folder))
        assert found["API compatibility"].grade is Grade.PASS
        assert found["API compatibility"].evidence.startswith(f"{chat} of {chat} calls of POST /v1/chat/completions")
        assert found["Observability"].grade is Grade.PASS
