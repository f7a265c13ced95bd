"""Requests with one answer: embeddings, rerank, score, classify, pooling, counts of tokens and audio."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from exporters.records.messages import TOO_LARGE, Finished
from exporters.relay.bodies.request_body import LONG_BODY, RequestBody
from exporters.relay.connections.exchange import PARSED_LIMIT
from exporters.relay.dialects.audio import MAX_FIELD, MAX_PARTS, form_fields
from exporters.relay.dialects.paths import METERED, endpoint_of_path
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.event_streams import stream_as_relay, stream_meter
from tests.support.scripted_relay import (
    DONE,
    Received,
    Script,
    Stage,
    answers,
    body_of,
    chunk,
    content,
    post,
    sends,
    staged,
    streams,
)

SALT = b"salt"
HASHING = ThreadPoolExecutor(1, "hashing")
EMBEDDINGS, RERANK, SCORE, POOLING = "/v1/embeddings", "/v1/rerank", "/v1/score", "/pooling"
TOKENIZE, DETOKENIZE, COUNT_TOKENS = "/tokenize", "/detokenize", "/v1/messages/count_tokens"
TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"

SLOS = """
version: 1
period: 12h
scrape_interval: 1s
classes:
  - {name: short, prompt_tokens: "<1000"}
slos:
  - {name: availability, classes: [short], signal: availability, objective: 99%}
  - {name: e2e, classes: [short], signal: e2e, threshold: 30s, objective: 99%}
  - {name: ttft, classes: [short], signal: ttft, threshold: 30s, objective: 99%}
  - {name: ttft-e2e, classes: [short], signal: ttft, threshold: 30s, objective: 99%, unary: e2e}
  - {name: tpot, classes: [short], signal: tpot, threshold: 1s, objective: 99%}
  - {name: itl, classes: [short], signal: itl_p95, threshold: 1s, objective: 99%}
  - {name: queue, classes: [short], signal: queue, threshold: 1s, objective: 99%}
  - {name: prefill, classes: [short], signal: prefill, threshold: 1s, objective: 99%}
  - {name: decode, classes: [short], signal: decode, threshold: 1s, objective: 99%}
"""


def parsed(path: str, fields: dict[str, object]) -> RequestBody:
    body = METERED[path].parse(json.dumps(fields).encode(), SALT, HASHING)
    assert body is not None
    return body


PARTS = [{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {"url": "data:" + "x" * 999}}]


@pytest.mark.parametrize(
    "path, fields, tokens",
    [
        pytest.param(EMBEDDINGS, {}, 0, id="nothing"),
        pytest.param(EMBEDDINGS, {"input": "ab\u00e9!"}, 1, id="a text"),
        pytest.param(EMBEDDINGS, {"input": ["abcd", "efgh"]}, 2, id="texts"),
        pytest.param(EMBEDDINGS, {"input": [1, 2, 3]}, 3, id="token ids"),
        pytest.param(EMBEDDINGS, {"input": [[1, 2, 3], [4]]}, 4, id="lists of token ids"),
        pytest.param(EMBEDDINGS, {"input": [1] * LONG_BODY}, LONG_BODY, id="many token ids"),
        pytest.param(EMBEDDINGS, {"input": None, "dimensions": 64}, 0, id="null"),
        pytest.param(EMBEDDINGS, {"messages": [{"role": "user", "content": PARTS}]}, 1, id="messages with parts"),
        pytest.param(RERANK, {"query": "abcd", "documents": ["efgh", "ijkl"]}, 3, id="a query and documents"),
        pytest.param(RERANK, {"query": "abcd", "documents": [{"content": PARTS}]}, 2, id="documents with parts"),
        pytest.param(SCORE, {"text_1": "abcd", "text_2": ["efgh", "ijkl"]}, 3, id="pairs of texts"),
        pytest.param(SCORE, {"queries": ["abcd"], "items": "efgh"}, 2, id="queries and items"),
        pytest.param(SCORE, {"data_1": "abcd", "data_2": "efgh"}, 2, id="pairs of data"),
        pytest.param("/classify", {"input": ["abcd"]}, 1, id="classify"),
        pytest.param(POOLING, {"input": "abcd", "data": {"any": "thing"}}, 1, id="pooling"),
        pytest.param(TOKENIZE, {"prompt": "abcdefgh"}, 2, id="tokenize a prompt"),
        pytest.param(TOKENIZE, {"messages": [{"role": "user", "content": "abcd"}]}, 1, id="tokenize messages"),
        pytest.param(DETOKENIZE, {"tokens": [1, 2, 3]}, 3, id="detokenize"),
        pytest.param(SCORE, {"text_1": [["abcd"], ["efgh"]]}, len('[["abcd"], ["efgh"]]') / 4, id="another form"),
        pytest.param(EMBEDDINGS, {"input": ["a", 1, None]}, len('["a", 1, null]') / 4, id="texts and other values"),
        pytest.param(COUNT_TOKENS, {"system": "abcd", "messages": [{"content": "efgh"}]}, 2, id="count tokens"),
    ],
)
def test_the_tokens_of_the_input_are_estimated(path: str, fields: dict[str, object], tokens: float) -> None:
    body = parsed(path, {"model": "m", **fields})
    assert (body.model, body.prompt_tokens, body.stream, body.max_tokens) == ("m", tokens, False, None)


def test_the_hash_depends_on_the_model_and_on_each_input() -> None:
    requests: list[dict[str, object]] = [
        {"model": "m", "query": "a", "documents": ["b"]},
        {"model": "n", "query": "a", "documents": ["b"]},
        {"model": "m", "query": "c", "documents": ["b"]},
        {"model": "m", "query": "a", "documents": ["d"]},
        {"model": "m", "documents": ["b"], "query": "a", "top_n": 3},  # as the first
    ]
    assert len({parsed(RERANK, request).digests.prompt for request in requests}) == 4


def form(*parts: tuple[str, bytes], boundary: bytes = b"------------------------0123") -> bytes:
    """A form of parts, each the parameters of its disposition and its content."""
    pieces = [
        b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (boundary, parameters.encode(), value)
        for parameters, value in parts
    ]
    return b"".join(pieces) + b"--%s--\r\n" % boundary


FILE = 'name="file"; filename="model"', b"RIFF\r\n--\r\n\r\nname=model\0\xff"
MODEL = 'name="model"', b"whisper"


@pytest.mark.parametrize(
    "parts, fields",
    [
        pytest.param([MODEL, FILE], {"model": b"whisper"}, id="a file after the model"),
        pytest.param([FILE, MODEL], {"model": b"whisper"}, id="a file before the model"),
        pytest.param([("name=model", b"whisper")], {"model": b"whisper"}, id="a name without quotes"),
        pytest.param([('name="model"', b"")], {}, id="an empty field"),
        pytest.param([('name="file"', b"x" * (MAX_FIELD + 1)), MODEL], {"model": b"whisper"}, id="a long file"),
        pytest.param([('name="x"', b"")] * (MAX_PARTS - 1) + [MODEL], {"model": b"whisper"}, id="many parts"),
    ],
)
def test_the_fields_of_a_form_are_read(parts: list[tuple[str, bytes]], fields: dict[str, bytes]) -> None:
    assert form_fields(form(*parts)) == fields


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"model":"m"}', id="json"),
        pytest.param(b"--\r\n", id="no boundary"),
        pytest.param(form(MODEL, boundary=b"x" * 71), id="a long boundary"),
        pytest.param(form(), id="no parts"),
        pytest.param(form(MODEL, FILE)[:-40], id="a form without its end"),
        pytest.param(form(('filename="model"', b"x")), id="a file without a name"),
        pytest.param(form(('name="model"', b"x" * (MAX_FIELD + 1))), id="a long field"),
        pytest.param(form(*[('name="x"', b"")] * MAX_PARTS, MODEL), id="too many parts"),
        pytest.param(form(*[(f'name="x"; x="{"y" * 3000}"', b"")] * 6, MODEL), id="long headers"),
        pytest.param(form(MODEL).replace(b"\r\n\r\n", b"\r\na: b" * 9 + b"\r\n\r\n"), id="many headers"),
    ],
)
def test_a_body_that_is_no_form_is_not_understood(data: bytes) -> None:
    assert METERED[TRANSCRIPTIONS].parse(data, SALT, HASHING) is None


async def asked(stage: Stage, path: str, body: bytes) -> tuple[bytes, Finished]:
    response = await stage.ask(post(body, path=path))
    return response, await stage.record()


USAGE = {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": None}
FORM = form(FILE, MODEL)
GOOD = {"availability": Verdict.GOOD, "e2e": Verdict.GOOD, "ttft-e2e": Verdict.GOOD}
CASES = [
    pytest.param(EMBEDDINGS, {"input": "hi"}, {"data": [{"embedding": [0.5]}], "usage": USAGE}, 9, id="embeddings"),
    pytest.param(
        RERANK, {"query": "q", "documents": []}, {"results": [], "usage": {"total_tokens": 9}}, 9, id="rerank"
    ),
    pytest.param("/v2/rerank", {"query": "q", "documents": []}, {"results": [], "usage": USAGE}, 9, id="v2 rerank"),
    pytest.param("/rerank", {"query": "q", "documents": []}, {"results": [], "usage": USAGE}, 9, id="plain rerank"),
    pytest.param(SCORE, {"text_1": "a", "text_2": "b"}, {"data": [{"score": 0.5}], "usage": USAGE}, 9, id="v1 score"),
    pytest.param("/score", {"text_1": "a", "text_2": "b"}, {"data": [], "usage": USAGE}, 9, id="plain score"),
    pytest.param("/classify", {"input": "hi"}, {"data": [{"probs": [0.5]}], "usage": USAGE}, 9, id="classify"),
    pytest.param(POOLING, {"input": "hi"}, {"data": [{"data": [[0.5]]}], "usage": USAGE}, 9, id="pooling"),
    pytest.param(TOKENIZE, {"prompt": "hi"}, {"count": 2, "tokens": [1, 2]}, None, id="tokenize"),
    pytest.param(DETOKENIZE, {"tokens": [1, 2]}, {"prompt": "hi"}, None, id="detokenize"),
    pytest.param(COUNT_TOKENS, {"messages": []}, {"input_tokens": 9}, None, id="count_tokens"),
]


@pytest.mark.parametrize("path, request_fields, answer, tokens", CASES)
async def test_a_request_with_one_answer_has_model_tokens_and_verdicts(
    tmp_path: Path, path: str, request_fields: dict[str, Any], answer: dict[str, Any], tokens: int | None
) -> None:
    request = json.dumps({"model": "m", **request_fields}).encode()
    async with staged(tmp_path, answers(answer), slo_file=SLOS) as stage:
        response, record = await asked(stage, path, request)
        assert json.loads(response.partition(b"\r\n\r\n")[2]) == answer
        assert stage.requests[0].body == request
    assert (record.outcome, record.model, record.request_class, record.route) == (Outcome.OK, "m", "short", path)
    assert (record.metered, record.stream, record.unparsed, record.unmetered) == (True, False, None, None)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (tokens, None, None)
    assert (record.slo, record.goodput) == (GOOD, True)
    assert (record.ttft, record.tpot, record.max_tokens) == (None, None, None)
    counts_only = tokens is None
    assert (record.prompt_sha256 is None, record.prompt_estimate is None) == (counts_only, counts_only)


@pytest.mark.parametrize("path", [EMBEDDINGS, TOKENIZE, TRANSCRIPTIONS])
async def test_an_error_is_bad_for_the_slos_that_apply_and_no_event_of_the_engines_times(
    tmp_path: Path, path: str
) -> None:
    async with staged(tmp_path, answers({"error": {"message": "no"}}, status=500), slo_file=SLOS) as stage:
        _, record = await asked(stage, path, FORM if path == TRANSCRIPTIONS else b'{"model":"m","input":"hi"}')
    assert record.outcome is Outcome.UPSTREAM_ERROR
    assert record.slo == dict.fromkeys(GOOD, Verdict.BAD)


async def test_a_count_of_the_tokens_of_a_structured_request_has_no_output_to_check(tmp_path: Path) -> None:
    fields = {"model": "m", "messages": [], "output_config": {"format": {"type": "json_schema", "schema": {}}}}
    slo_file = SLOS + "  - {name: valid, classes: [short], signal: valid_output, objective: 99%}\n"
    async with staged(tmp_path, answers({"input_tokens": 9}), slo_file=slo_file, check_structured_output=True) as stage:
        _, record = await asked(stage, COUNT_TOKENS, json.dumps(fields).encode())
    assert (record.slo, record.structured_result) == (GOOD, None)


async def test_a_late_answer_is_bad_for_e2e_before_it_arrives(tmp_path: Path) -> None:
    async with staged(
        tmp_path, Received.gone, slo_file=SLOS.replace("e2e, threshold: 30s", "e2e, threshold: 1ms")
    ) as stage:
        await stage.client(post(b'{"model":"m","input":"hi"}', path=EMBEDDINGS))
        await stage.reached()
        (exchange,) = stage.relay._open
        exchange.measurement.check_deadline(exchange.measurement.zero + 0.1)
        judged = exchange.measurement.early_verdicts()
        assert judged is not None
        assert (judged.model, judged.slo) == ("m", {"e2e": Verdict.BAD})
        assert not exchange.measurement.awaits_first_token


BY_ENDPOINT = """
version: 1
period: 12h
scrape_interval: 1s
classes:
  - {name: vectors, route: [embeddings, pooling]}
  - {name: text, max_tokens: "<=0"}
slos:
  - {name: vectors, classes: [vectors], signal: e2e, threshold: 30s, objective: 99%}
  - {name: text, classes: [text], signal: availability, objective: 99%}
"""


@pytest.mark.parametrize(
    "path, header, request_class",
    [
        pytest.param(EMBEDDINGS, "", "vectors", id="a route of the class"),
        pytest.param(POOLING, "", "vectors", id="another route of the class"),
        pytest.param(RERANK, "", "text", id="a route that the class does not match"),
        pytest.param(EMBEDDINGS, "x-request-class: text\r\n", "text", id="the header before the route"),
        pytest.param(EMBEDDINGS, "x-request-class: warm-up\r\n", "warm-up", id="a warm-up"),
        pytest.param("/v1/chat/completions", "", "other", id="a route with completions"),
    ],
)
async def test_the_route_selects_the_class_and_its_slos(
    tmp_path: Path, path: str, header: str, request_class: str
) -> None:
    async with staged(tmp_path, answers({"usage": USAGE}), slo_file=BY_ENDPOINT) as stage:
        await stage.ask(post(b'{"model":"m"}', path=path, headers=header))
        record = await stage.record()
    assert record.request_class == request_class
    assert record.slo == ({} if request_class in {"other", "warm-up"} else {request_class: Verdict.GOOD})


TRANSCRIPT_TOKENS = {"type": "tokens", "input_tokens": 14, "output_tokens": 5, "total_tokens": 19}
DURATION = {"type": "duration", "seconds": 3}
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi"


@pytest.mark.parametrize(
    "path, script, tokens",
    [
        pytest.param(TRANSCRIPTIONS, answers({"text": "hi", "usage": DURATION}), (None, None), id="a duration"),
        pytest.param(TRANSLATIONS, answers({"text": "hi", "usage": TRANSCRIPT_TOKENS}), (14, 5), id="tokens"),
        pytest.param(TRANSCRIPTIONS, sends(PLAIN), (None, None), id="only text"),
    ],
)
async def test_the_model_of_a_form_is_read_and_the_form_is_unchanged(
    tmp_path: Path, path: str, script: Script, tokens: tuple[int | None, int | None]
) -> None:
    async with staged(tmp_path, script, slo_file=SLOS) as stage:
        _, record = await asked(stage, path, FORM)
        assert stage.requests[0].body == FORM
    assert (record.model, record.outcome, record.slo) == ("whisper", Outcome.OK, GOOD)
    assert (record.prompt_tokens, record.completion_tokens) == tokens
    assert (record.api, record.prompt_sha256, record.prompt_estimate) == (endpoint_of_path(path), None, None)


@pytest.mark.parametrize("value", [b"true", b"True", b"1"])
async def test_a_streamed_transcript_has_a_ttft(tmp_path: Path, value: bytes) -> None:
    request = form(MODEL, ('name="stream"', value), FILE)
    events = [content("a"), content("b", "stop")]
    async with staged(tmp_path, streams(*events, DONE), slo_file=SLOS) as stage:
        response, record = await asked(stage, TRANSCRIPTIONS, request)
        assert body_of(response) == b"".join([*events, DONE])
        assert stage.requests[0].body == request
    assert (record.outcome, record.stream, record.model) == (Outcome.OK, True, "whisper")
    assert record.ttft is not None
    assert {name for name, verdict in record.slo.items() if verdict is Verdict.GOOD} == {
        *("availability", "e2e", "ttft", "ttft-e2e", "itl")
    }


async def test_a_form_above_the_limit_is_streamed_and_its_model_is_unknown(tmp_path: Path) -> None:
    request = form(MODEL, (FILE[0], b"x" * PARSED_LIMIT))
    async with staged(tmp_path, answers({"text": "hi"})) as stage:
        _, record = await asked(stage, TRANSCRIPTIONS, request)
        assert stage.requests[0].body == request
    assert (record.outcome, record.model, record.unparsed) == (Outcome.OK, "", TOO_LARGE)
    assert record.slo == {"availability": Verdict.GOOD}


def transcript_event(**fields: object) -> bytes:
    return b"data: %s\n\n" % json.dumps(fields).encode()


DELTAS = [transcript_event(type="transcript.text.delta", delta=text) for text in ("Hel", "lo ", "you")]
DONE_EVENT = transcript_event(type="transcript.text.done", text="Hello you", usage=TRANSCRIPT_TOKENS)


@pytest.mark.parametrize("last, outcome", [(DONE_EVENT, Outcome.OK), (b"", Outcome.TRUNCATED)])
async def test_a_transcript_in_the_events_of_openai_is_complete_with_its_last_event(
    tmp_path: Path, last: bytes, outcome: Outcome
) -> None:
    events = [*DELTAS, *filter(None, [last])]
    async with staged(tmp_path, streams(*events), slo_file=SLOS) as stage:
        response, record = await asked(stage, TRANSCRIPTIONS, form(MODEL, ('name="stream"', b"true"), FILE))
        assert body_of(response) == b"".join(events)
    complete = outcome is Outcome.OK
    assert (record.outcome, record.stream) == (outcome, True)
    assert (record.prompt_tokens, record.completion_tokens) == ((14, 5) if complete else (None, len(DELTAS)))
    assert record.ttft is not None
    assert record.slo["availability"] is (Verdict.GOOD if complete else Verdict.BAD)


def test_deltas_of_a_transcript_use_the_fast_path() -> None:
    meter = stream_meter(dialect=METERED[TRANSCRIPTIONS])
    assert stream_as_relay(meter, DELTAS) == [chunk(event) for event in DELTAS[1:]]
    assert (meter.chunks, meter.first_at, meter.answer_at) == (len(DELTAS), 0.0, 0.0)


def test_an_error_in_a_stream_of_openais_transcript_events_is_bad() -> None:
    meter = stream_meter(dialect=METERED[TRANSCRIPTIONS])
    for event in (DELTAS[0], transcript_event(type="error", error={"message": "no"})):
        meter.stream(event, 0.0)
    assert meter.outcome(200, streams=True, complete=True) is Outcome.UPSTREAM_ERROR
