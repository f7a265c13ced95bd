"""`vllm-slo requests` on the command line."""

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.analysis.requests import selection
from exporters.analysis.requests.conditions import Row
from exporters.analysis.requests.log_fields import NUMBERS, SORTABLE
from exporters.analysis.requests.selection import Selection
from exporters.records.messages import Finished
from exporters.requestlog.writer import RequestLog
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.command_line import CommandLine
from tests.support.sample_records import finished

GOOD, BAD = {"ttft": Verdict.GOOD, "availability": Verdict.GOOD}, {"ttft": Verdict.BAD, "availability": Verdict.GOOD}
START = 1_700_000_000.0
RECORDS = [
    finished(request_id="r-1", time=START, ttft=0.25, queue=0.1, slo=GOOD, prompt_tokens=7, completion_tokens=20),
    finished(
        request_id="r-2", time=START + 1, ttft=2.5, queue=2.0, slo=BAD, request_class="long", tpot=0.0125, e2e=9.0
    ),
    finished(request_id="r-3", time=START + 2, stream=False, route="/v1/completions", slo={}, tenant="other", e2e=0.5),
    finished(
        request_id="r-4",
        time=START + 3,
        outcome=Outcome.REJECTED,
        status=503,
        slo={"availability": Verdict.BAD},
        e2e=0.01,
    ),
    finished(
        request_id="r-5",
        time=START + 4,
        outcome=Outcome.CLIENT_ABORT,
        status=200,
        model="other/model",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        slo={"ttft": Verdict.ABANDONED},
        e2e=0.75,
    ),
]


def write(path: Path, records: Iterable[Finished]) -> Path:
    log = RequestLog(path)
    log.write("run", list(enumerate(records, 1)), None)
    log.close()
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "requests.jsonl", RECORDS)


def printed(cli: CommandLine, log: Path, words: str = "", status: int = 0) -> str:
    return cli("requests", "--request-log", log, *words.split(), status=status)


def ids(cli: CommandLine, log: Path, words: str = "") -> list[str]:
    return [json.loads(line)["request_id"] for line in printed(cli, log, f"{words} --format json").splitlines()]


@pytest.mark.parametrize(
    "words, found",
    [
        pytest.param("", "12345", id="all"),
        pytest.param("--class long", "2", id="class"),
        pytest.param("--class long --class none", "2", id="alternatives"),
        pytest.param("--class long --outcome rejected", "", id="all conditions must apply"),
        pytest.param("--model other/model", "5", id="model"),
        pytest.param("--tenant other", "3", id="tenant"),
        pytest.param("--route /v1/completions", "3", id="route"),
        pytest.param("--outcome rejected --outcome client_abort", "45", id="outcome"),
        pytest.param("--request-id r-4", "4", id="request id"),
        pytest.param("--trace-id 0af7651916cd43dd8448eb211c80319c", "5", id="trace id"),
        pytest.param("--status 503", "4", id="status"),
        pytest.param("--status 2xx --status 503", "12345", id="range of statuses"),
        pytest.param("--slo ttft=bad", "2", id="slo"),
        pytest.param("--slo ttft=good --slo availability=good", "1", id="all SLOs must apply"),
        pytest.param("--slo ttft=abandoned", "5", id="abandoned"),
        pytest.param("--goodput good", "1", id="goodput"),
        pytest.param("--goodput bad", "24", id="no goodput"),
        pytest.param("--stream", "1245", id="streams"),
        pytest.param("--unary", "3", id="unary"),
        pytest.param("--min queue_ms=100 --max queue_ms=1000", "1", id="bounds"),
        pytest.param("--min e2e_ms=750", "125", id="the bound is included"),
        pytest.param("--since 2023-11-14T22:13:22Z", "345", id="since"),
        pytest.param("--until 1700000002", "12", id="until"),
        pytest.param("--since 1700000001 --until 2023-11-14T23:13:24+01:00", "234", id="between"),
        pytest.param("--since 1h", "345", id="a duration before now"),
        pytest.param("--since 2h --until 59m58s", "1234", id="durations"),
        pytest.param("--sort queue_ms", "21345", id="largest first, unknown last"),
        pytest.param("--sort queue_ms --ascending", "12345", id="smallest first, unknown last"),
        pytest.param("--sort e2e_ms --limit 2", "21", id="the first of the sorted"),
        pytest.param("--sort time --limit 2", "54", id="latest first"),
        pytest.param("--sort trace_id", "51234", id="texts in their order"),
        pytest.param("--limit 2", "45", id="the last of the log"),
        pytest.param("--around r-2", "12345", id="overlapping requests"),
        pytest.param("--around run:1", "12", id="around a record"),
        pytest.param("--around r-2 --tenant team-a", "1245", id="overlapping requests that match"),
    ],
)
def test_filters_order_and_limit(
    log: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, words: str, found: str
) -> None:
    monkeypatch.setattr("time.time", lambda: START + 3602)
    assert ids(cli, log, words) == [f"r-{number}" for number in found]


def test_a_log_of_an_earlier_release_is_filtered_by_its_endpoint(log: Path, cli: CommandLine) -> None:
    log.write_bytes(log.read_bytes().replace(b'"route":', b'"endpoint":'))
    assert ids(cli, log, "--route /v1/completions") == ["r-3"]


def test_json_lines_are_those_of_the_log_with_the_fields_of_later_versions(log: Path, cli: CommandLine) -> None:
    later = log.read_bytes().replace(b'"record"', b'"a_later_field":[1],"record"')
    log.write_bytes(later)
    assert printed(cli, log, "--format json").encode() == later
    selected = printed(cli, log, "--format json --columns slo,queue_ms --limit 1")
    assert selected == '{"slo":{"ttft":"abandoned"},"queue_ms":null}\n'


def test_csv_has_the_values_of_the_log(log: Path, cli: CommandLine) -> None:
    columns = "time,request_id,stream,status,queue_ms,trace_id,slo"
    rows = [*csv.reader(io.StringIO(printed(cli, log, f"--format csv --columns {columns} --limit 4")))]
    assert rows[:3] == [
        columns.split(","),
        ["2023-11-14T22:13:21.000000+00:00", "r-2", "true", "200", "2000.0", "", "ttft=bad availability=good"],
        ["2023-11-14T22:13:22.000000+00:00", "r-3", "false", "200", "", "", ""],
    ]


def test_csv_has_no_cell_that_a_spreadsheet_would_execute(tmp_path: Path, cli: CommandLine) -> None:
    record = finished(model="=HYPERLINK(1)", tenant="+t", request_id="@id", temperature=-1.5)
    path = write(tmp_path / "log", [record])
    columns = "model,tenant,request_id,temperature"
    assert printed(cli, path, f"--format csv --columns {columns}") == f"{columns}\n'=HYPERLINK(1),'+t,'@id,-1.5\n"


WIDE = """\
time          request_id  class  status  outcome       prompt_tokens  completion_tokens  ttft_ms  tpot_ms  e2e_ms  queue_ms  slo
22:13:20.000  r-1         short     200  ok                        7                 20      250        -    1500       100  good
22:13:21.000  r-2         long      200  ok                        -                  -     2500     12.5    9000      2000  bad: ttft
22:13:22.000  r-3         short     200  ok                        -                  -        -        -     500         -  -
22:13:23.000  r-4         short     503  rejected                  -                  -        -        -    10.0         -  bad: availability
22:13:24.000  r-5         short     200  client_abort              -                  -        -        -     750         -  abandoned: ttft

times: UTC on 2023-11-14
5 of 5 matching requests; 5 lines read
"""  # noqa: E501
NARROW = """\
time          request_id  class  ttft_ms  e2e_ms  queue_ms  slo
22:13:21.000  r-2         long      2500    9000      2000  bad: ttft
22:13:20.000  r-1         short      250    1500       100  good
22:13:24.000  r-5         short        -     750         -  abandoned: ttft
22:13:22.000  r-3         short        -     500         -  -
22:13:23.000  r-4         short        -    10.0         -  bad: availability

times: UTC on 2023-11-14
columns that do not fit here: status, outcome, prompt_tokens, completion_tokens,
tpot_ms
5 of 5 matching requests; 5 lines read
"""
AROUND = """\
   time          request_id  queue_ms
   22:13:20.000  r-1              100
>  22:13:21.000  r-2             2000
   22:13:24.000  r-5                -

times: UTC on 2023-11-14

other requests at its  in flight  waiting  streaming  unary
arrival                        1        0          1      0
first token                    0        0          0      0
end                            0        0          0      0

4 other requests overlap with it; printed: 2, the longest overlaps
"""


def stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n"))


@pytest.mark.parametrize(
    "width, words, table",
    [
        pytest.param("150", "", WIDE, id="wide"),
        pytest.param("80", "--sort e2e_ms", NARROW, id="narrow"),
        pytest.param("80", "--around r-2 --limit 3 --columns time,request_id,queue_ms", AROUND, id="around"),
    ],
)
def test_the_table_fits_its_width(
    log: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, width: str, words: str, table: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    out = printed(cli, log, words)
    assert stripped(out) == table
    assert all(len(line) <= int(width) for line in out.splitlines())


def test_a_table_in_a_pipe_is_as_wide_as_its_columns_and_has_no_colours(
    log: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert stripped(printed(cli, log)) == WIDE


def test_a_sorted_and_a_filtered_field_are_columns_and_control_characters_are_not_sent_to_the_terminal(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    log = write(tmp_path / "log", [finished(request_id="\x1b[31m", decode=1.0, prefill=0.25)])
    head, row, *_ = printed(cli, log, "--sort decode_ms --min prefill_ms=1").splitlines()
    assert head.split() == ["time", "request_id", "class", "prefill_ms", "decode_ms"]
    assert row.split() == ["22:13:20.250", "\\x1b[31m", "short", "250", "1000"]


def test_times_of_several_days_have_a_date(tmp_path: Path, cli: CommandLine) -> None:
    log = write(tmp_path / "log", [finished(), finished(time=START + 86400)])
    table = "time\n2023-11-14 22:13:20.250\n2023-11-15 22:13:20.000\n\ntimes: UTC\n"
    assert stripped(printed(cli, log, "--columns time")).startswith(table)


@given(values=st.lists(st.integers(0, 5) | st.none(), max_size=20), limit=st.integers(1, 25), ascending=st.booleans())
def test_a_sorted_selection_is_the_start_of_all_sorted_requests(
    values: list[int | None], limit: int, ascending: bool
) -> None:
    matches: list[tuple[Row, bytes]] = [(Value(value), str(number).encode()) for number, value in enumerate(values)]
    known = sorted(
        (match for match in matches if match[0].queue_ms is not None),
        key=lambda match: match[0].queue_ms if ascending else -match[0].queue_ms,
    )
    expected = [line for _, line in known] + [line for row, line in matches if row.queue_ms is None]
    selected = Selection("queue_ms", ascending, limit)
    assert [*selected.lines(matches)] == expected[:limit]
    assert selected.found == len(values)


class Value:
    def __init__(self, queue_ms: int | None) -> None:
        self.queue_ms = queue_ms


def test_a_sorted_output_without_a_limit_is_bounded_and_says_so(
    log: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "MOST_SORTED", 2)
    monkeypatch.setattr("exporters.analysis.requests.command.MOST_SORTED", 2)
    assert len(ids(cli, log, "--sort e2e_ms")) == 2
    assert cli.errors == "vllm-slo requests: printed the first 2 of 5 requests; --limit N keeps more in memory\n"


def test_bad_lines_are_reported_and_fail_only_a_strict_run(log: Path, cli: CommandLine) -> None:
    with log.open("ab") as file:
        file.write(b'{"time":"2023-11-14T22:13:20')
    for words, status in (("", 0), ("--strict", 1)):
        assert len(printed(cli, log, f"--format json {words}", status).splitlines()) == 5
        assert cli.errors == (
            f"vllm-slo requests: {log}: lines that are not requests: 1; the first is line 6: Input data was truncated\n"
        )


def test_a_compressed_file_that_ends_early_is_reported(log: Path, tmp_path: Path, cli: CommandLine) -> None:
    first, *_ = log.read_bytes().splitlines(keepends=True)
    (tmp_path / "log.gz").write_bytes(gzip.compress(first)[:-8])
    assert ids(cli, tmp_path / "log.gz") == ["r-1"]
    assert cli.errors == (
        f"vllm-slo requests: {tmp_path / 'log.gz'}: lines that are not requests: 1; the first is line 2: Compressed "
        "file ended before the end-of-stream marker was reached\n"
    )


@pytest.mark.parametrize("form", ["csv", "text"])
def test_a_number_out_of_range_in_a_field_that_is_only_printed_is_infinite(
    log: Path, cli: CommandLine, form: str
) -> None:
    log.write_bytes(log.read_bytes().replace(b'"prompt_tokens":7', b'"prompt_tokens":1e999'))
    table = printed(cli, log, f"--request-id r-1 --columns prompt_tokens --format {form}")
    assert table.split()[:2] == ["prompt_tokens", "inf"]


@pytest.mark.parametrize("name", SORTABLE)
def test_every_field_can_be_sorted_printed_and_decoded(log: Path, cli: CommandLine, name: str) -> None:
    for form in ("text", "csv", "json"):
        assert len(printed(cli, log, f"--sort {name} --columns {name} --format {form}").splitlines()) >= 5
        assert cli.errors == ""


def test_an_outcome_of_a_later_version_is_printed_and_null_is_bad(log: Path, cli: CommandLine) -> None:
    lines = log.read_bytes().replace(b'"rejected"', b'"later"').replace(b'"client_abort"', b"null")
    log.write_bytes(lines)
    assert printed(cli, log, "--status 503 --format csv --columns outcome") == "outcome\nlater\n"
    printed(cli, log, "--format csv --columns outcome")
    assert cli.errors == (
        f"vllm-slo requests: {log}: lines that are not requests: 1; the first is line 5: Expected `str`, got `null` - "
        "at `$.outcome`\n"
    )


def test_a_query_without_a_match_shows_when_the_log_ends(log: Path, cli: CommandLine) -> None:
    assert printed(cli, log, "--since 5m") == "0 of 0 matching requests; 5 lines read\n"
    assert cli.errors == (
        "vllm-slo requests: no request matches; the last request in the log arrived at 2023-11-14T22:13:24+00:00\n"
    )


def test_an_empty_log_has_no_requests(tmp_path: Path, cli: CommandLine) -> None:
    (tmp_path / "log").touch()
    assert printed(cli, tmp_path / "log") == "0 of 0 matching requests; 0 lines read\n"


OTHER_NUMBERS = ", ".join(name for name in NUMBERS if name != "ttft_ms")


@pytest.mark.parametrize(
    "words, message",
    [
        ("--format xml", "--format: 'xml' is unknown; known: text, json, csv, mooncake"),
        ("--min ttft=1", f"--min: 'ttft' is not a field that can be used here; known: ttft_ms, {OTHER_NUMBERS}"),
        ("--columns quue_ms", "--columns: 'quue_ms' is not a field that can be used here; known: queue_ms, "),
        ("--sort slo", "--sort: 'slo' is not a field that can be used here; known: time, request_id, "),
        ("--min ttft_ms=fast", "--min: 'fast' is not a number"),
        ("--max ttft_ms=nan", "--max: 'nan' is not a number"),
        ("--max ttft_ms", "--max: 'ttft_ms' has no name and value; write for example ttft_ms=500"),
        ("--slo bad", "--slo: 'bad' has no name and value; write for example ttft=bad"),
        ("--slo ttft=badd", "--slo: 'badd' is unknown; did you mean 'bad'?"),
        ("--goodput abandoned", "--goodput: 'abandoned' is unknown; known: good, bad"),
        ("--outcome aborted", "--outcome: 'aborted' is unknown; "),
        ("--status 5x", "--status: '5x' is not an HTTP status; write for example 503 or 5xx"),
        ("--stream --unary", "--stream and --unary exclude each other"),
        ("--limit 0", "--limit: '0' is not a number of requests; write a whole number of at least 1"),
        (
            "--since soon",
            "--since: 'soon' is not a valid time; write unix seconds or RFC 3339, such as 2026-01-31T12:00:00Z",
        ),
        ("--until 1e300", "--until: '1e300' is out of range"),
        ("--around r-9", "--around: no request has the request_id or record 'r-9'"),
        pytest.param(
            "--around same",
            "--around: several requests have the request_id 'same'; write one of their records: run:6 "
            "(2023-11-14T22:13:20.250000+00:00), run:7 (2023-11-14T22:13:20.250000+00:00)",
        ),
        (
            "--around r-1 --sort time",
            "--around prints the requests in order of arrival, so --sort cannot be used with it",
        ),
        ("- --around r-1", "--around reads the log twice, so it needs files; standard input and pipes are read once"),
    ],
)
def test_wrong_usage(tmp_path: Path, cli: CommandLine, words: str, message: str) -> None:
    log = write(tmp_path / "log", [*RECORDS, finished(request_id="same"), finished(request_id="same")])
    printed(cli, log, words, 2)
    assert message in cli.errors


def test_a_file_without_any_request_is_refused(tmp_path: Path, cli: CommandLine) -> None:
    (tmp_path / "log").write_bytes(b"nginx: 200\n")
    printed(cli, tmp_path / "log", status=2)
    assert cli.errors.splitlines()[-1] == (
        "vllm-slo: no line is a request; give files that `vllm-slo sidecar --request-log FILE` has written"
    )
