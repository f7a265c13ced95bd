"""All children use one SLO file: the one of the start until SIGHUP, then the new one, if it is valid."""

import asyncio
import itertools
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.sidecar_state import kill_exporter, kill_relay
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, Running, sidecar
from tests.support.waiting import growing_pause, until

pytestmark = pytest.mark.slow

QUICK = START + QUICK_RESTARTS + RUN


def slo_file(*names: str, request_class: str = "all", gaps: tuple[int, ...] = (), e2e: int | None = None) -> str:
    """An SLO file with availability SLOs of these names, and thresholds of gaps (ms) and of the duration (s)."""

    def slo(name: str, signal: str) -> str:
        return f"  - {{name: {name}, classes: [{request_class}], signal: {signal}, objective: 99%}}\n"

    slos = [slo(name, "availability") for name in names]
    slos += [slo(f"gap-{gap}", f"itl_p95, threshold: {gap}ms") for gap in gaps]
    slos += [slo("e2e", f"e2e, threshold: {e2e}s")] if e2e else []
    head = f"version: 1\nperiod: 2h\nscrape_interval: 200ms\nclasses: [{{name: {request_class}}}]\nslos:\n"
    return head + "".join(slos)


INVALID = "version: 1\nperiod: month\nclasses: []\n"
SUCCESSFUL = "llm_sidecar_config_last_reload_successful{}"
READ_AT = "llm_sidecar_config_last_reload_success_timestamp_seconds{}"
FEW, MANY = slo_file("old"), slo_file("old", gaps=tuple(range(11, 400, 20)))


def events(slo: str, request_class: str = "all") -> str:
    return f"llm_slo_events_total{{{request_class},tiny,{slo},other}}"


async def reload(running: Running, folder: Path, text: str) -> None:
    """Replace the SLO file, send SIGHUP, and wait until the exporter has reloaded."""
    before = (await running.samples())[READ_AT]
    (folder / "slos.yaml").write_text(text)
    running.process.send_signal(signal.SIGHUP)

    async def reloaded() -> bool:
        return (await running.samples())[READ_AT] > before

    await until(reloaded)


async def judged_by(running: Running, slo: str) -> None:
    """Send requests until one is judged by this SLO: the relay reloads a moment after the exporter."""
    for number in itertools.count():
        name = f"{slo}-{number}"
        assert await running.ask(name) == 200
        await until(lambda name=name: name in [line["request_id"] for line in running.lines()])  # type: ignore[misc]
        if slo in running.lines()[-1]["slo"]:
            return


def errors(running: Running) -> list[str]:
    return [line for line in running.log_lines() if line.startswith(("ERROR", "CRITICAL"))]


async def test_watched_files_are_reloaded_without_a_signal_when_their_mounted_folder_is_replaced(
    tmp_path: Path,
) -> None:
    """Kubernetes replaces the link to the folder of a mounted ConfigMap or Secret."""
    (tmp_path / "mount").mkdir()
    for name, text in (("1", FEW), ("2", slo_file("new"))):
        (tmp_path / "mount" / name).mkdir()
        (tmp_path / "mount" / name / "slos.yaml").write_text(text)
    token = tmp_path / "token"
    token.write_text("of-the-start\n")
    token.chmod(0o600)
    (tmp_path / "mount/data").symlink_to("1")
    mounted = str(tmp_path / "mount/data/slos.yaml")
    code = START + "supervisor.WATCH_SECONDS = 0.05; " + RUN
    flags = ("--slos", mounted, "--admin-token-file", str(token), "--watch-files")
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *flags, code=code) as running:
        engine.may_finish.set()
        await judged_by(running, "old")
        (tmp_path / "mount/next").symlink_to("2")
        (tmp_path / "mount/next").replace(tmp_path / "mount/data")
        await judged_by(running, "new")
        token.write_text("rotated\n")

        async def rotated() -> bool:
            return (await running.fetch("/admin/flips", headers={"authorization": "Bearer rotated"}))[0] == 200

        await until(rotated)
        assert (await running.samples())[SUCCESSFUL] == 1
        assert errors(running) == []


@pytest.mark.parametrize(
    "at_start, edited", [pytest.param(FEW, MANY, id="more thresholds"), pytest.param(MANY, FEW, id="fewer thresholds")]
)
async def test_an_edited_file_is_not_used_by_a_child_that_restarts(tmp_path: Path, at_start: str, edited: str) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, slo_file=at_start, code=QUICK) as running:
        engine.may_finish.set()
        up = f"llm_engine_up{{127.0.0.1:{engine.port}}}"
        await running.shows(up, 1)
        (tmp_path / "slos.yaml").write_text(edited)
        for kill in (kill_relay, kill_exporter):
            await kill(running)
            await running.shows(up, 1)
            for _ in range(3):
                assert (await running.stream()).endswith("data: [DONE]\n\n")
            await running.shows(events("old"), 3)
            await running.shows("llm_inter_chunk_seconds_count{all,tiny}", 3)
        thresholds = {name for line in running.lines() for name in line["slo"]} - {"old"}
        assert bool(thresholds) == (at_start == MANY)
        assert errors(running) == []


async def test_open_requests_keep_their_slos_and_new_requests_get_the_new_ones(tmp_path: Path) -> None:
    """Also if the exporter is killed between: it counts the requests of both files."""
    old, new = slo_file("old", request_class="a", e2e=100), slo_file("new", request_class="b", gaps=(11, 13), e2e=200)
    duration, ttft = "llm_request_duration_seconds_count", "llm_time_to_first_token_seconds_count"
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, slo_file=old, code=QUICK) as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("first") == 200
        await running.shows(events("old", "a"), 1)
        async with running.open_stream("one") as one, running.open_stream("two") as two:
            await reload(running, tmp_path, new)
            samples = await running.samples()
            assert (samples[SUCCESSFUL], samples[events("new", "b")], samples[events("old", "a")]) == (1, 0, 1)
            assert samples[f"{duration}{{b,tiny}}"] == 0
            assert f"{duration}{{a,tiny}}" not in samples  # its bounds have changed, so it has restarted
            assert samples["llm_requests_total{a,tiny,ok,chat_completions,false,other}"] == 1
            await judged_by(running, "new")
            in_flight = "llm_requests_in_flight{a,tiny,streaming}"
            await running.shows(in_flight, 2)
            await kill_exporter(running)
            await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
            await running.shows(in_flight, 2)
            assert await running.ask("last") == 200
            engine.may_finish.set()
            await asyncio.gather(one.read(), two.read())
        await running.shows(events("old", "a"), 2)
        await running.shows(f"{ttft}{{a,tiny}}", 2)
        await running.shows(f"{duration}{{a,tiny}}", 2)
        await running.shows("llm_inter_chunk_seconds_count{a,tiny}", 2)
        await running.shows(events("new", "b"), 1)
        judged = {line["request_id"]: set(line["slo"]) for line in running.lines()}
        assert (judged["one"], judged["two"], judged["last"]) == ({"old", "e2e"}, {"old", "e2e"}, {"new", "e2e"})
        assert (
            "INFO supervisor: SLO file reloaded; it applies to requests that arrive from now on" in running.log_lines()
        )
        assert errors(running) == []


async def test_under_load_each_request_is_judged_by_one_file_and_counted_once(tmp_path: Path) -> None:
    files = [slo_file("a-1", "a-2", gaps=(11,)), slo_file("b-1", "b-2", gaps=(12, 13))]
    requests = 0
    async with (
        serving(Engine()) as engine,
        sidecar(tmp_path, engine.url, "--workers", "2", slo_file=files[0]) as running,
    ):
        engine.may_finish.set()
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        over = asyncio.Event()

        async def load() -> None:
            nonlocal requests
            while not over.is_set():
                await running.stream()
                requests += 1

        clients = [asyncio.ensure_future(load()) for _ in range(8)]
        for number in range(1, 4):
            await reload(running, tmp_path, files[number % 2])
            await until(lambda least=requests + 50: requests >= least)  # type: ignore[misc]
        over.set()
        await asyncio.gather(*clients)
        await until(lambda: len(running.lines()) == requests)
        judged = Counter(frozenset(line["slo"]) for line in running.lines())
        assert judged.keys() == {frozenset({"a-1", "a-2", "gap-11"}), frozenset({"b-1", "b-2", "gap-12", "gap-13"})}
        for names, count in judged.items():
            for name in names:
                await running.shows(events(name), count)
        assert errors(running) == []


async def test_with_an_invalid_file_a_sighup_keeps_the_old_slos_and_reads_the_other_files(tmp_path: Path) -> None:
    before = time.time()
    token = tmp_path / "token"
    token.write_text("of-the-start\n")
    token.chmod(0o600)
    words = ("--admin-token-file", str(token))
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words, slo_file=FEW, code=QUICK) as running:
        await judged_by(running, "old")
        start = (await running.samples())[READ_AT]
        assert before < start < time.time()
        await running.shows(SUCCESSFUL, 1)
        token.write_text("renewed\n")
        (tmp_path / "slos.yaml").write_text(INVALID)
        running.process.send_signal(signal.SIGHUP)
        await running.shows(SUCCESSFUL, 0)
        assert (await running.fetch("/admin/flips", headers={"authorization": "Bearer renewed"}))[0] == 200
        for kill in (kill_relay, kill_exporter):
            await judged_by(running, "old")
            await kill(running)
        samples = await running.samples()
        assert (samples[SUCCESSFUL], samples[READ_AT]) == (0, start)
        where = tmp_path / "slos.yaml"
        assert errors(running) == [
            (
                f"ERROR supervisor: {where}:1:1: the key slos is missing; "
                f"{where}:2:9: period: 'month' is not a valid duration; "
                "write a number with a unit, such as 250ms, 5s, 1m, 12h or 30d; "
                f"{where}:3:10: classes: is empty; write at least one class, such as {{name: all}}; "
                "keeping the old SLO file"
            )
        ]
        await reload(running, tmp_path, slo_file("new"))
        await running.shows(SUCCESSFUL, 1)
        await judged_by(running, "new")


async def keep_reloading(running: Running) -> None:
    began = time.monotonic()
    while True:
        running.process.send_signal(signal.SIGHUP)
        await growing_pause(began)


async def test_a_child_that_is_starting_at_a_sighup_uses_the_new_file(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, slo_file=FEW, code=QUICK) as running:
        running.signal_relay(signal.SIGKILL)
        running.signal_exporter(signal.SIGKILL)
        await until(lambda: running.relay is None or running.exporter is None)
        (tmp_path / "slos.yaml").write_text(slo_file("new"))
        reloading = asyncio.ensure_future(keep_reloading(running))
        await until(running.ready)
        reloading.cancel()
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("one") == 200
        await running.shows(events("new"), 1)
        exits = [line for line in running.log_lines() if line.endswith("restarting it")]
        assert len(exits) == 2, exits


async def test_an_slo_on_output_that_is_not_checked_is_rejected_and_the_old_file_kept(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, slo_file=FEW, code=QUICK) as running:
        await running.shows(SUCCESSFUL, 1)
        (tmp_path / "slos.yaml").write_text(slo_file("new").replace("availability", "valid_output"))
        running.process.send_signal(signal.SIGHUP)
        await running.shows(SUCCESSFUL, 0)
        await judged_by(running, "old")
        assert errors(running) == [
            (
                f"ERROR supervisor: {tmp_path}/slos.yaml: the SLO 'new' judges valid_output, which needs "
                "--check-structured-output; add this flag or remove the SLO; keeping the old SLO file"
            )
        ]
