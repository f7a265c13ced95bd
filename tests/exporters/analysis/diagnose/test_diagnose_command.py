"""`vllm-slo diagnose` on the command line: its report, its JSON and its refusals."""

import json
from pathlib import Path

import pytest

from exporters.vocabulary import signals
from exporters.vocabulary.signals import Verdict
from tests.exporters.analysis.diagnose.workload_logs import log, prompts, stream
from tests.support.command_line import CommandLine
from tests.support.fake_prometheus import FakePrometheus


@pytest.fixture
def overloaded(tmp_path: Path) -> str:
    """Thirty requests wait in the queue; their prompts begin alike, and the cache is off."""
    return log(
        tmp_path,
        (
            stream(
                each,
                queue=9,
                prefill=0.9,
                frontend=0.1,
                output=101,
                cached_tokens=0,
                slo={"ttft": Verdict.BAD},
                **prompt,
            )
            for each, prompt in enumerate(prompts(30, 2048, shared=1536))
        ),
    )


def test_the_report_opens_with_the_conclusion_and_its_evidence(overloaded: str, cli: CommandLine) -> None:
    words = " ".join(cli("diagnose", "--request-log", overloaded, "--verbose").split())
    assert words.startswith(
        f"source: {overloaded} time: 2027-01-15 08:00:00 to 2027-01-15 08:00:41 UTC "
        "siso: bound by queue: queue time / TTFT 90 % (queue_ms, sum of 30 requests that missed an SLO on TTFT); "
        "try first: prefix caching. "
        "siso evidence TTFT p50 10 s (ttft_ms of 30 requests) "
        "burn rate, SLOs on the first token 20 (SLO ttft: 30 of 30 bad) "
        "lever prefix caching: --enable-prefix-caching "
        "reason hit ratio, possible, all classes 72.5 % (prefix_hashes of all classes, unlimited cache), and it seems "
        "to be off: 0 % hits (cached_tokens of all classes) "
        "price no gain for prompts that differ in their first block, and none in decode; a full KV cache evicts the "
        "prefixes "
        "measure cache hit ratio, TTFT, also of other classes "
        "figure siso from, or what would give it requests 30 lines of the request log "
    )
    assert "queue time p50 9 s queue_ms of 30 requests" in words
    assert "repeated bodies unknown no hashes: a log of an older sidecar" in words
    assert "KV cache use, p95 unknown diagnose --prometheus URL" in words


def test_without_verbose_the_report_fits_a_screen(overloaded: str, cli: CommandLine) -> None:
    lines = cli("diagnose", "--request-log", overloaded).splitlines()
    assert len(lines) < 24
    (unknown,) = [line for line in lines if line.startswith("unknown: ")]
    assert "KV cache use, p95" in unknown
    assert unknown.endswith("more (--verbose: all figures)")
    assert not [line for line in lines if line.startswith("figure ")]


def test_the_json_has_stable_keys(overloaded: str, cli: CommandLine) -> None:
    report = cli.json("diagnose", "--request-log", overloaded, "--set", "max-model-len=4096")
    assert list(report) == ["sources", "start", "end", "classes", "engine", "notes"]
    (found,) = report["classes"]
    assert list(found) == ["class", "binding", "conclusion", "because", "lever", "figures"]
    assert list(found["lever"]) == ["name", "how", "why", "price", "measure"]
    assert found["figures"]["queue_share"] == {
        "value": 0.9,
        "unit": "share",
        "from": "queue_ms, sum of 30 requests that missed an SLO on TTFT",
    }
    assert found["figures"]["repeated_bodies"] == {
        "value": None,
        "unit": "share",
        "unknown": "no hashes: a log of an older sidecar, or of one with --log-content off",
    }
    assert report["engine"]["figures"]["max_model_len"] == {"value": 4096.0, "unit": "tokens", "from": "--set"}
    assert report["engine"]["settings"] == {"max_model_len": "4096"}
    classes, note = report["notes"]
    assert classes.startswith("Classes: siso: short in, short out")
    assert note == (
        "The longest request has 2,149 tokens (class siso): 52.5 % of max_model_len 4,096 (--set). A lower "
        "max_model_len rejects longer requests; it does not enlarge the KV cache of vLLM."
    )


def test_a_note_says_that_answers_look_cached(tmp_path: Path, cli: CommandLine) -> None:
    generated = [stream(n, queue=0, prefill=0.1, output=101, body_repeat=False) for n in range(10)]
    cached = [
        stream(n, queue=0, prefill=0, frontend=0.002, output=101, tpot=0, body_repeat=True) for n in range(10, 30)
    ]
    path = log(tmp_path, [*generated, *cached])
    _, note = cli.json("diagnose", "--request-log", path)["notes"]
    assert note == (
        "Answers look cached (class siso): repeated bodies answered as by a response cache 100 % (e2e_ms / "
        "completion_tokens below 4 ms, of 20 with body_repeat). A decode takes longer, so the figures of the class "
        "are not those of the engine alone."
    )


def test_the_roofline_gives_the_floor_of_tpot(overloaded: str, tmp_path: Path, cli: CommandLine) -> None:
    roofline = tmp_path / "roofline.json"
    decode = {"1": 50.0, "8": 400.0, "64": 3200.0}
    roofline.write_text(
        json.dumps({"prefill_tokens_per_second": 10_000, "decode_tokens_per_second": decode, "kv_tokens": 1})
    )
    report = cli.json("diagnose", "--request-log", overloaded, "--roofline", roofline)
    figures = report["engine"]["figures"]
    assert figures["running"]["value"] == 3  # 2.9 s each, one a second
    assert figures["tpot_floor"] == {"value": 0.02, "unit": "seconds", "from": f"{roofline} at batch 3"}
    assert figures["draft_floor"]["value"] == 1.0  # reading the weights takes as long for 12 tokens as for 3


@pytest.mark.parametrize(
    "words, message",
    [
        ("", "give --request-log FILE, --prometheus URL, or both"),
        ("--request-log none.jsonl", "none.jsonl: no such file, and no rotated file of that name"),
        ("--request-log {log} --class sisi", "--class: no request has class 'sisi'; did you mean 'siso'?"),
        (
            "--request-log {log} --set max_num_seqs",
            "--set: 'max_num_seqs' has no name and value; write for example max_num_seqs=128",
        ),
        ("--request-log {log} --since 5m --until 10m", "--since: 5m is not before --until 10m"),
        (
            "--request-log {log} --since yesterday",
            "--since: 'yesterday' is not a valid time; write unix seconds or RFC 3339, such as 2026-01-31T12:00:00Z",
        ),
        (
            "--request-log {log} --roofline {folder}/none.json",
            "{folder}/none.json: cannot be read: no such file or directory",
        ),
    ],
)
def test_a_refusal_says_what_would_work(
    words: str, message: str, overloaded: str, tmp_path: Path, cli: CommandLine
) -> None:
    names = {"log": overloaded, "folder": tmp_path}
    assert cli.refusal("diagnose", *words.format(**names).split()) == message.format(**names)


@pytest.mark.parametrize(
    "status, response, message",
    [
        pytest.param(
            200,
            {"data": {"resultType": "vector", "result": []}},
            "{url} has no llm_requests_total that increased in the 1h before 1800000000 (unix seconds); is the sidecar "
            "scraped? Another time: --since and --until",
            id="not the series of a sidecar",
        ),
        pytest.param(422, {"error": "too many samples"}, "a query of {url} failed: too many samples", id="rejected"),
    ],
)
def test_a_prometheus_that_cannot_be_used_is_refused(
    status: int, response: object, message: str, cli: CommandLine
) -> None:
    with FakePrometheus(lambda *_: (status, response)) as fake:
        refused = cli.refusal("diagnose", "--prometheus", fake.url, "--until", "1800000000")
    assert refused == f"--prometheus: {message.format(url=fake.url)}"


def test_requests_that_are_all_open_are_diagnosed(cli: CommandLine) -> None:
    """No request ends on a hung engine, so no counter increases."""
    now = {
        signals.IN_FLIGHT.name: ({"class": "siso"}, "50"),
        signals.OLDEST_WAIT.name: ({"class": "siso"}, "90"),
        signals.ENGINE_WAITING.name: ({}, "40"),
    }

    def respond(_: str, parameters: dict[str, str]) -> tuple[int, object]:
        found = [value for name, value in now.items() if name in parameters["query"]]
        result = [{"metric": labels, "value": [0, value]} for labels, value in found]
        return 200, {"data": {"resultType": "vector", "result": result}}

    with FakePrometheus(respond) as fake:
        (siso,) = cli.json("diagnose", "--prometheus", fake.url)["classes"]
    assert siso["conclusion"] == (
        "siso: bound by queue: waiting requests, mean 40 (llm_engine_requests_waiting); try first: more capacity."
    )
    (stuck,) = siso["because"][1:]
    assert stuck == (
        "open requests without a first token, at the end 50 (llm_requests_in_flight), age of the oldest of them 90 s "
        "(llm_oldest_wait_seconds)"
    )
