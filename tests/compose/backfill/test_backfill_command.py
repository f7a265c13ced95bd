"""`vllm-slo backfill` with a real promtool, and queries of a real Prometheus over its blocks."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from compose.backfill.recorded_series import temporary_prometheus
from compose.cli import main
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus
from exporters.records.messages import Finished
from exporters.requestlog.writer import RequestLog
from exporters.vocabulary.signals import Outcome, Verdict
from tests.compose.golden_texts import assert_golden
from tests.exporters.analysis.compare.sample_logs import seeded
from tests.support.sample_records import finished

START = 1_800_000_000
"""Unix seconds, a multiple of two hours: 2027-01-15T08:00:00Z."""

HOUR, STEP, SCRAPE = 3600, 300, 15
SLOS = """
version: 1
period: 30d
classes:
  - {name: chat}
slos:
  - {name: ttft, classes: [chat], signal: ttft, threshold: 300ms, objective: 95%}
"""


def traffic() -> list[Finished]:
    """Four and a half hours; the share of slow requests changes in the course."""
    rng = seeded(7)
    records, at = [], START + 600.0
    while at < START + 4.5 * HOUR:
        ttft = rng.expovariate(1 / (0.05 + 0.1 * ((at - START) // HOUR)))
        failed = rng.random() < 0.02
        records.append(
            finished(
                time=at,
                request_class="chat",
                tenant="other",
                e2e=ttft + 1.0,
                ttft=None if failed else ttft,
                outcome=Outcome.UPSTREAM_ERROR if failed else Outcome.OK,
                status=502 if failed else 200,
                prompt_tokens=None if failed else 100,
                completion_tokens=None if failed else 10,
                slo={"ttft": Verdict.BAD if failed or ttft > 0.3 else Verdict.GOOD},
            )
        )
        at += rng.expovariate(0.2)
    return records


RECORDS = traffic()


def write(path: Path, records: list[Finished], run: str = "run") -> Path:
    log = RequestLog(path)
    log.write(run, list(enumerate(records, 1)), None)
    log.close()
    return path


@dataclass(frozen=True, slots=True)
class Backfilled:
    server: Prometheus
    blocks: Path
    printed: str
    reported: str


@pytest.fixture(scope="module")
def backfilled(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backfilled]:
    """Blocks of a log with a rotated, compressed file and bad lines, and of a second log."""
    folder = tmp_path_factory.mktemp("backfill")
    (folder / "slos.yaml").write_text(SLOS)
    third = len(RECORDS) // 3
    rotated = write(folder / "rotated", RECORDS[:third], "a").read_bytes()
    (folder / "log.20270115T091500.000000Z.gz").write_bytes(gzip.compress(rotated + b"not a request\n"))
    # The same lines are in another file, too; the last third is of another sidecar.
    write(folder / "log", RECORDS[: 2 * third], "a")
    write(folder / "other", RECORDS[2 * third :], "b")
    out = folder / "blocks"
    with (
        pytest.MonkeyPatch.context() as patch,
        (folder / "err").open("w") as err,
        (folder / "printed").open("w") as text,
    ):
        patch.setattr("sys.stderr", err)
        patch.setattr("sys.stdout", text)
        words = ["--slos", str(folder / "slos.yaml"), "--out", str(out), "--labels", "instance=s:1"]
        words += ["--promtool", str(tools.promtool), "--prometheus-program", str(tools.prometheus)]
        assert main(["backfill", "--request-log", str(folder / "log"), str(folder / "other"), *words]) == 0
    with temporary_prometheus(tools.prometheus, out, folder) as server:
        yield Backfilled(server, out, (folder / "printed").read_text(), (folder / "err").read_text())


def due(record: Finished) -> float:
    return -(-(record.time + record.e2e) // SCRAPE) * SCRAPE


def events(after: float, until: float) -> tuple[int, int]:
    """SLO events and bad events that the samples after one time and up to another count."""
    verdicts = [record.slo["ttft"] for record in RECORDS if after < due(record) <= until]
    return len(verdicts), verdicts.count(Verdict.BAD)


def one(server: Prometheus, query: str, at: float) -> float:
    (sample,) = server.query(query, at)
    return sample.value


def test_counters_have_the_counts_of_the_log_at_any_time(backfilled: Backfilled) -> None:
    for at in (START + 600, START + HOUR, START + 2 * HOUR, START + 3 * HOUR + 7, START + 4 * HOUR, START + 4.5 * HOUR):
        total, bad = events(0, at // SCRAPE * SCRAPE)
        assert (
            one(backfilled.server, 'llm_slo_events_total{model="tiny",job="vllm-slo-sidecar",instance="s:1"}', at)
            == total
        )
        assert one(backfilled.server, "sum(llm_slo_bad_events_total)", at) == bad
        ok = sum(record.outcome is Outcome.OK and due(record) <= at for record in RECORDS)
        assert one(backfilled.server, 'sum(llm_requests_total{outcome="ok",model="tiny"})', at) == ok
        assert one(backfilled.server, "sum(llm_time_to_first_token_seconds_count)", at) == ok
        assert one(backfilled.server, "sum(llm_prompt_tokens_total)", at) == 100 * ok


def test_the_first_requests_are_an_increase(backfilled: Backfilled) -> None:
    first = due(RECORDS[0])
    assert one(backfilled.server, "llm_slo_events_total{model='tiny'}", first - SCRAPE) == 0
    assert one(backfilled.server, "sum(increase(llm_slo_events_total[10m]))", first + 60) > 0


def test_a_panel_over_the_past_has_the_quantile_of_the_log(backfilled: Backfilled) -> None:
    """The share of TTFT up to a bound of the histogram, the threshold of the SLO."""
    at, bucket = START + 4 * HOUR + 2, "llm_time_to_first_token_seconds_bucket"
    inside = [r.ttft for r in RECORDS if r.ttft is not None and START + 3 * HOUR + 15 < due(r) <= START + 4 * HOUR]
    share = f'sum(increase({bucket}{{le="0.3"}}[1h])) / sum(increase({bucket}{{le="+Inf"}}[1h]))'
    assert one(backfilled.server, share, at) == pytest.approx(sum(ttft <= 0.3 for ttft in inside) / len(inside))


@pytest.mark.parametrize("minute", [100, 151, 233, 269])
def test_a_burn_rate_of_a_short_window_is_that_of_the_log(backfilled: Backfilled, minute: int) -> None:
    """The first rule of a page reads windows of an hour and of 5 minutes from the raw counters."""
    at = START + minute * 60 + 1.5  # the rules are evaluated 1.5 s after each minute
    for window, seconds in (("1h", 3600), ("30m", 1800)):
        first = (at - seconds) // SCRAPE * SCRAPE + SCRAPE
        total, bad = events(first, at // SCRAPE * SCRAPE)
        assert one(
            backfilled.server, f'llm_slo:error_budget:burn_rate{{slo="ttft",window="{window}"}}', at
        ) == pytest.approx(bad / total / 0.05)


def test_a_burn_rate_of_a_summed_window_is_that_of_the_log(backfilled: Backfilled) -> None:
    """Steps are read two scrapes late; the window of two hours has 24 of them."""
    at = START + 40 * 240 + 1.5 + 5 * 240 + 60
    evaluated = START + 45 * 240 + 1.5
    last_step = evaluated // STEP * STEP
    total, bad = events(last_step - 24 * STEP - SCRAPE, last_step - SCRAPE)
    assert one(backfilled.server, 'llm_slo:events:increase{model="tiny",window="2h"}', at) == pytest.approx(total)
    assert one(backfilled.server, 'llm_slo:error_budget:burn_rate{window="2h"}', at) == pytest.approx(
        bad / total / 0.05
    )


def test_the_longest_windows_have_each_step_once(backfilled: Backfilled) -> None:
    """Also at times at which a dozen of steps is incomplete, so that they need the series that reads itself."""
    for minutes in range(72, 270, 12):
        at = START + minutes * 60 + 1.5
        steps = one(backfilled.server, 'sum_over_time(llm_slo:events:increase{model="tiny",window="step"}[1d])', at)
        for window in ("1d", "3d", "30d"):
            counted = one(backfilled.server, f'llm_slo:events:increase{{model="tiny",window="{window}"}}', at)
            assert counted == pytest.approx(steps), f"{window} after {minutes} minutes"
    left = 1 - one(backfilled.server, 'llm_slo:error_budget:burn_rate{window="30d"}', at)
    assert one(backfilled.server, "llm_slo:error_budget:remaining_ratio", at) == pytest.approx(left)


def test_the_command_reports_what_it_did_and_what_to_do_next(backfilled: Backfilled) -> None:
    third, blocks = len(RECORDS) // 3, backfilled.blocks
    assert f": lines that are not requests: 1; the first is line {third + 1}: " in backfilled.reported
    assert f"{third:,} lines were in several files and are counted once\n" in backfilled.reported
    assert "recording rules: pass 6 of 6: " in backfilled.reported
    names = sorted(path.name for path in blocks.iterdir() if re.fullmatch("[0-9A-Z]{26}", path.name))
    assert re.match(
        rf"{re.escape(str(blocks))}: {len(names)} blocks, [\d,]+ samples of {len(RECORDS):,} requests, "
        r"from 2027-01-15T08:0\d:\d\dZ to 2027-01-15T12:3\d:\d\dZ\n",
        backfilled.printed,
    )
    assert f"promtool tsdb list {blocks}\n" in backfilled.printed
    assert f"cp -r {blocks}/* DATA/" in backfilled.printed


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log.jsonl", RECORDS[:20])


def run(log: Path, *words: str) -> int:
    slos = log.with_name("slos.yaml")
    slos.write_text(SLOS)
    return main(["backfill", "--request-log", str(log), "--slos", str(slos), *words])


def test_without_a_prometheus_the_recorded_series_are_left_out(
    tools: Tools, log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    for number, flags in enumerate(([], ["--no-rules"])):
        out = log.with_name(f"blocks{number}")
        assert run(log, "--out", str(out), "--promtool", str(tools.promtool), *flags) == 0
        assert len(list(out.iterdir())) == 1
        said = "recording rules are left out; add --prometheus-program PATH" in capsys.readouterr().err
        assert said is not bool(flags)


def test_only_requests_that_ended_in_the_time_are_counted(
    tools: Tools, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = sorted(record.time + record.e2e for record in RECORDS[:20])
    words = ["--since", f"{ends[3]:.6f}", "--until", f"{ends[15] - 0.001:.6f}", "--no-rules", "--step", "5s"]
    assert run(log, "--out", str(tmp_path / "blocks"), "--promtool", str(tools.promtool), *words) == 0
    assert " samples of 12 requests, " in capsys.readouterr().out


def test_a_folder_with_files_is_not_changed(tools: Tools, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = log.parent / "data"
    (out / "wal").mkdir(parents=True)
    assert run(log, "--out", str(out), "--promtool", str(tools.promtool)) == 2
    assert capsys.readouterr().err == f"vllm-slo: --out: {out} is not empty; give a new or empty folder\n"
    assert [path.name for path in out.iterdir()] == ["wal"]


REFUSED = {
    "a label without a value": "--labels instance",
    "a label of the series": "--labels region=eu,model=m",
    "a long step": "--step 5m",
    "a step that is too long for the rules": "--step 80s",
    "a short block": "--max-block-duration 30m",
    "no promtool": "--promtool /no/promtool",
    "no prometheus": "--prometheus-program /no/prom",
    "no request": "--since 2030-01-01T00:00:00Z",
}


def test_a_wrong_flag_is_rejected(tools: Tools, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, out = {}, log.with_name("blocks")
    for case, words in REFUSED.items():
        assert run(log, "--out", str(out), "--promtool", str(tools.promtool), *words.split()) == 2
        found[case] = capsys.readouterr().err.strip()
        assert not out.exists() or not [*out.iterdir()]
    assert_golden(__file__, "refusals", found)
