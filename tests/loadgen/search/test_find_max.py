"""`vllm-slo load find-max` against a scripted server whose capacity counts due times, in a process of its own."""

import argparse
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exporters.text.errors import UsageError
from exporters.vocabulary import slo_file
from loadgen import command
from loadgen.client.engine_idle import open_requests
from loadgen.schedule import scenario
from loadgen.schedule.phases import Steady
from loadgen.search import settings
from loadgen.search.attainment import Attainment, events_needed
from loadgen.search.probes import Look, Timing, demand, first_rate_phase, pairs, plan
from loadgen.search.settings import FindMaxSettings
from tests.loadgen.load_process import SHAPE, hold, load, received, scripted_server, starting_load, write_scenario
from tests.loadgen.load_records import record
from tests.support.waiting import HANG, wait_until

_SLOW = (
    'from loadgen.results import client_health; client_health.MAX_STALLED = float("inf"); '
    "from loadgen.search import find_max; find_max._TICK = 0.05"
)
"""The load generator may be slow on a busy machine; a probe is looked at often, so that it ends soon."""

_SLOS = """version: 1
period: 30d
classes: [{name: siso}]
slos: [{name: availability, classes: [siso], signal: availability, objective: 80%}]
"""
_LOCAL = ("--target", "http://127.0.0.1:1", "--out", "out")


def _files(folder: Path) -> tuple[Path, Path]:
    """A scenario with constant arrivals, and SLOs of which a decision needs 16 requests."""
    path = write_scenario(folder, "siso", rate=20, duration="1s", timeout="1m")
    path.write_text(path.read_text().replace("rate: 20", "rate: 20, arrivals: constant"))
    judged = folder / "slos.yaml"
    judged.write_text(_SLOS)
    return path, judged


def _arguments(folder: Path, target: str) -> tuple[str, ...]:
    path, judged = _files(folder)
    files = ("--scenario", str(path), "--slos", str(judged), "--target", target, "--out", str(folder / "out"))
    times = ("--min-probe", "1s", "--max-probe", "4s", "--cool-down", "1ms", "--max-send-lag", "1h")
    return ("find-max", *files, *times, "--resolution", "0.5", "--log-level", "error")


def _find_max(folder: Path, target: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return load(*_arguments(folder, target), *flags, before=_SLOW)


def _result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "find-max.json").read_text())
    return found


@pytest.mark.slow
def test_the_capacity_is_found_by_a_search_that_continues_after_a_stop_and_is_not_run_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with scripted_server("--capacity", "50") as target:  # a fifth of the requests fails at 62.5/s
        with starting_load(*_arguments(tmp_path, target), before=_SLOW) as process:
            assert wait_until((out / "find-max.json").exists)
            first = _result(tmp_path)["probes"][0]
            process.send_signal(signal.SIGTERM)
            shown, _ = process.communicate(timeout=HANG)
        assert process.returncode == 1
        assert "stopped: interrupted" in shown
        assert "run it again with the same settings to continue the search" in shown
        before = (out / first["folder"] / "requests.jsonl").stat().st_mtime_ns
        continued = _find_max(tmp_path, target)
        assert (continued.returncode, continued.stderr) == (0, "")
        requests = len(received(target))
        again = _find_max(tmp_path, target)
        assert len(received(target)) == requests
        other = _find_max(tmp_path, target, "--confidence", "0.9")
    found = _result(tmp_path)
    assert found["probes"][0] == first
    assert (found["stopped"], found["answer"]["finding"]) == (None, "between")
    assert (out / first["folder"] / "requests.jsonl").stat().st_mtime_ns == before
    assert found["answer"]["low"] <= 62.5 <= found["answer"]["high"] <= 1.5 * found["answer"]["low"]
    assert [probe["rate"] for probe in found["probes"][:3]] == [20, 40, 80]
    assert [probe["attainment"] for probe in found["probes"][:3]] == ["met", "met", "missed"]
    assert len({probe["seed"] for probe in found["probes"]}) == len(found["probes"])
    for probe in found["probes"]:
        files = {path.name for path in (out / probe["folder"]).iterdir()}
        assert {"requests.jsonl", "run.json", "summary.json"} <= files
    lines = continued.stdout.splitlines()
    assert lines[0].startswith("small: a probe needs 16 requests, because availability of siso needs 16 of its class")
    text = f"largest rate: between {found['answer']['low']:g} and {found['answer']['high']:g} requests/s (95 % "
    assert any(line.startswith(text) and "siso misses availability" in line for line in lines)
    assert again.returncode == 0
    assert again.stdout.count("(of an earlier run)") == len(found["probes"])
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr == (
        f"vllm-slo: --out {out}: contains a search with other settings (--confidence was 0.95, is 0.9); "
        "choose another folder, or use these settings to continue it\n"
    )


@pytest.mark.slow
def test_a_target_that_ends_is_no_miss_and_the_probes_before_are_kept(tmp_path: Path) -> None:
    with scripted_server("--exit-after", "50") as target:
        process = _find_max(tmp_path, target)
    assert process.returncode == 1
    found = _result(tmp_path)
    assert [probe["attainment"] for probe in found["probes"]] == ["met"]
    assert found["stopped"].startswith("the target was lost in the probe at 40 requests/s: cannot connect to ")
    assert "largest rate: undecided: 20 requests/s is met, none is missed" in process.stdout


@pytest.mark.slow
def test_an_invalid_probe_ends_the_search(tmp_path: Path) -> None:
    with scripted_server() as target:
        process = _find_max(tmp_path, target, "--max-send-lag", "0s")
    assert process.returncode == 1
    found = _result(tmp_path)
    assert found["probes"] == []
    assert found["stopped"].startswith("the probe at 20 requests/s is INVALID: ")
    assert "largest rate: undecided: no probe was finished" in process.stdout


def _parsed(*arguments: str) -> FindMaxSettings:
    parser = argparse.ArgumentParser(prog="vllm-slo load")
    command.configure(parser)
    return settings.from_arguments(parser.parse_args(["find-max", *arguments]))


def _refused(path: Path, judged: Path, *flags: str) -> str:
    with pytest.raises(UsageError) as refusal:
        _parsed("--scenario", str(path), "--slos", str(judged), *_LOCAL, *flags)
    return str(refusal.value)


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--cap", "10"), "--cap 10: is below the first rate, 20 requests/s (--start)"),
        (("--max-probe", "30s"), "--max-probe 30s: is below --min-probe 1m"),
        (
            ("--min-probe", "100ms", "--max-probe", "500ms", "--start", "20"),
            (
                "--max-probe 500ms: too short to decide at 20 requests/s, where siso has the 16 requests that "
                "availability needs after 1s; set a longer --max-probe, or --start 32"
            ),
        ),
    ],
)
def test_settings_that_cannot_give_an_answer_are_refused(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert _refused(*_files(tmp_path), *flags) == message


@pytest.mark.slow
def test_the_first_rate_is_the_lowest_that_a_probe_can_decide_if_that_of_the_scenario_is_lower() -> None:
    lowest = _parsed("--scenario", "mixed", *_LOCAL, "--slos", "alerts/slos.yaml").limits
    assert lowest.floor == pytest.approx(4.247, rel=0.1)
    assert lowest.floor <= lowest.start < lowest.floor + 0.1


def test_a_scenario_without_a_rate_needs_a_first_one(tmp_path: Path) -> None:
    path, judged = _files(tmp_path)
    path.write_text(path.read_text().replace("rate: 20, arrivals: constant", "users: 3"))
    assert _refused(path, judged) == (
        "--start: the scenario has no rate to start with; set one, in requests/s, such as --start 2"
    )
    assert _parsed("--scenario", str(path), "--slos", str(judged), *_LOCAL, "--start", "2").limits.start == 2


def test_a_scenario_that_no_slo_judges_is_refused(tmp_path: Path) -> None:
    path, judged = _files(tmp_path)
    judged.write_text(_SLOS.replace("classes: [siso]", "classes: [other]"))
    assert (
        _refused(path, judged) == f"{path}: no SLO of {judged} judges a class of this scenario; check the class names"
    )


@pytest.mark.parametrize("flag", ["--duration=5m", "--rate-scale=2", "--allow-invalid", "--metrics=127.0.0.1:1"])
def test_flags_of_a_run_that_a_search_decides_itself_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        _parsed("--scenario", "mixed", *_LOCAL, flag)
    assert refusal.value.code == 2
    assert f"unrecognized arguments: {flag}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_probe_is_planned_for_the_rarest_class() -> None:
    mixed, judged = scenario.load(scenario.find("mixed")), slo_file.load(Path("alerts/slos.yaml"))
    phase, timing = Steady("any", 1, 1), Timing(60, 900, 0.95)
    demanded = demand(mixed, judged, phase, 0.95)
    assert demanded is not None
    assert demanded.binding == ("silo", "availability")
    assert demanded.events == 765
    assert demanded.requests == pytest.approx(765 / mixed.shares["silo"], rel=0.1)
    planned = plan(mixed, judged, phase, 10.0, 3, timing, demanded)
    first = next(look for look in planned.looks if not look.early)
    due = [request for request in planned.schedule if request.due <= first.at]
    for name, slo in planned.objectives:
        count = sum((name, slo) in pairs(request, judged) for request in due)
        assert count >= events_needed(planned.objectives[name, slo], 0.95)


def test_open_requests_count_as_good_for_a_miss_and_abandoned_ones_as_bad(tmp_path: Path) -> None:
    path, judged_by = _files(tmp_path)
    chosen, judged = scenario.load(path), slo_file.load(judged_by)
    phase = first_rate_phase(chosen.phases)
    demanded = demand(chosen, judged, phase, 0.95)
    assert demanded is not None
    planned = plan(chosen, judged, phase, 20.0, 0, Timing(1, 10, 0.95), demanded)
    look = Look(5.0, 1.96, 0.01, early=True)  # 100 requests are due by then
    bad = [record(due=number / 20, slo={"availability": verdict}) for number, verdict in enumerate(["bad"] * 30)]
    assert planned.judge(look, bad).attainment is Attainment.UNDECIDED  # 70 are open
    gone = [record(due=4.0, slo={"availability": "abandoned"})] * 10
    assert planned.judge(look, bad + gone).attainment is Attainment.MISSED
    late = [record(due=6.0, slo={"availability": "bad"})] * 100
    (counted,) = planned.judge(look, bad + late).tallies
    assert (counted.events, counted.bad) == (30, 30)


@pytest.mark.parametrize(
    "exposition, count",
    [
        ('vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 2.0\n', 5),
        ("llm_engine_requests_running 0\nllm_engine_requests_waiting 0\n", 0),
        ('# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running_old 3\nother{a="}"} 1\n', None),
    ],
)
def test_the_requests_of_the_engine_are_read_from_its_metrics(exposition: str, count: float | None) -> None:
    assert open_requests(exposition) == count


@pytest.mark.long
def test_a_saturated_probe_is_missed_before_a_look_decides_it(tmp_path: Path) -> None:
    """The server answers at once, then not at all; open requests count as good, so no look finds a miss."""
    path, judged = _files(tmp_path)
    often = "load_run.TICK = saturation.INTERVAL = 0.02"
    before = f"{_SLOW}; from loadgen.results import saturation; from loadgen.run import load_run; {often}"
    with scripted_server() as target:
        files = ("--scenario", str(path), "--slos", str(judged), "--target", target, "--out", str(tmp_path / "out"))
        times = ("--start", "100", "--min-probe", "2m", "--max-probe", "4m", "--grace", "0s", "--cool-down", "1ms")
        with starting_load("find-max", *files, *times, "--max-send-lag", "1h", before=before) as process:
            assert wait_until(lambda: len(received(target)) > 50)
            hold(target)
            assert wait_until((tmp_path / "out" / "find-max.json").exists)
            process.send_signal(signal.SIGTERM)
            shown, _ = process.communicate(timeout=HANG)
    probe = _result(tmp_path)["probes"][0]
    assert (probe["rate"], probe["attainment"], probe["seconds"]) == (100, "missed", probe["saturated"]["detected"])
    assert [tally["attainment"] for tally in probe["tallies"]] == ["undecided"]
    assert "probe 1: 100 requests/s: missed after " in shown
    assert "(the server was saturated from about " in shown


@pytest.mark.parametrize(
    "signal_, misses",
    [
        pytest.param("availability", True, id="the client gives up"),
        pytest.param("ttft, threshold: 5s", True, id="from the due time"),
        pytest.param("tpot, threshold: 5s", False, id="a queue does not slow down decoding"),
    ],
)
def test_saturation_decides_only_what_a_queue_makes_slow(tmp_path: Path, signal_: str, misses: bool) -> None:
    path, judged = _files(tmp_path)
    judged.write_text(_SLOS.replace("signal: availability", f"signal: {signal_}"))
    assert _parsed("--scenario", str(path), "--slos", str(judged), *_LOCAL).saturation_misses is misses
    path.write_text(path.read_text().replace("phases:", f"  other: {SHAPE}\nphases:"))
    assert not _parsed(
        "--scenario", str(path), "--slos", str(judged), *_LOCAL
    ).saturation_misses  # the other class may wait
