"""The simulator answers recorded requests as vLLM did."""

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.contract.recordings import NAMES, Event, Recording, events, recording
from tests.support.simulator import simulator

REJECTED = [
    name for name in NAMES if "-error-" in name or name.startswith(("responses-background", "responses-previous"))
]
NOT_STORED = ["responses-retrieve", "responses-cancel"]
APIS = ("responses-", "messages-", "chat-tool-")
# No engine fails in the simulator.
STREAMS = [
    name
    for name in NAMES
    if name.startswith(APIS) and name.endswith("-stream") and "failed" not in name and "stop-sequence" not in name
]
ONE_ANSWER = ("embeddings-unary", "embeddings-batch-unary", "tokenize", "tokenize-messages", "messages-count-tokens")
UNARY = [name for name in NAMES if name.startswith(APIS) and name.endswith("-unary")]
WORDS = frozenset({"type", "status", "role", "object", "stop_reason", "reason", "service_tier", "tool_choice"})
"""The fields whose values, not only their types, are those of vLLM."""


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    async with simulator("tiny") as url:
        yield url


async def answer(engine: str, recorded: Recording, changed: dict[str, Any] | None = None) -> tuple[int, str, bytes]:
    """Status, content type and body of the simulator's response."""
    body = json.dumps(json.loads(recorded.body) | changed).encode() if changed else recorded.body
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(engine) as client,
        client.request(recorded.method, recorded.path, data=body, headers=headers) as response,
    ):
        return response.status, response.headers["Content-Type"], await response.read()


def shape(value: Any, word: bool = False) -> Any:
    """The names in an object in their order and the types of their values, numbers being alike."""
    match value:
        case dict():
            return [(name, shape(child, name in WORDS)) for name, child in value.items()]
        case list():
            return [shape(child) for child in value]
        case str() if word:
            return value
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case _:
            return type(value).__name__


def outline(found: list[Event]) -> list[tuple[str | None, Any]]:
    """The name and shape of each event, tokens in succession only once."""
    each = [(event.name, event.data if event.data == "[DONE]" else shape(json.loads(event.data))) for event in found]
    return [event for event, _ in itertools.groupby(each)]


def changes(recorded: Recording) -> dict[str, Any]:
    """What the simulator needs for the same response."""
    if "/messages" in recorded.path and b'"end_turn"' in recorded.content:
        return {"max_tokens": 4000}  # room for the completion to end by itself
    body = json.loads(recorded.body)
    if "/responses" in recorded.path and "tool_choice" in body:
        return {"tool_choice": dict(sorted(body["tool_choice"].items()))}  # vLLM repeats it in this order
    if "text" in body:
        unset = {"description": None, "strict": None}  # vLLM repeats the fields that the client left out too
        return {"text": {"format": schema_first(body["text"]["format"]) | unset, "verbosity": None}}
    return {}


def schema_first(format_: dict[str, Any]) -> dict[str, Any]:
    return {name: format_[name] for name in ("name", "schema", "type")}


@pytest.mark.parametrize("name", [*REJECTED, *NOT_STORED])
async def test_a_request_that_vllm_rejects_gets_the_same_response(engine: str, name: str) -> None:
    recorded = recording(name)
    status, content_type, body = await answer(engine, recorded)
    assert (status, content_type.partition(";")[0]) == (recorded.status, recorded.headers["content-type"])
    assert json.loads(body) == recorded.answer


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_has_the_events_and_fields_of_vllm(engine: str, name: str) -> None:
    recorded = recording(name)
    status, content_type, body = await answer(engine, recorded, changes(recorded))
    assert (status, content_type) == (recorded.status, recorded.headers["content-type"])
    assert outline(events(body)) == outline(recorded.events)


@pytest.mark.parametrize("name", UNARY)
async def test_a_unary_response_has_the_fields_of_vllm(engine: str, name: str) -> None:
    recorded = recording(name)
    status, content_type, body = await answer(engine, recorded, changes(recorded))
    assert (status, content_type.partition(";")[0]) == (recorded.status, recorded.headers["content-type"])
    assert shape(json.loads(body)) == shape(recorded.answer)


@pytest.mark.parametrize("name", ONE_ANSWER)
async def test_requests_with_one_answer_have_the_fields_of_vllm(engine: str, name: str) -> None:
    recorded = recording(name)
    status, kind, body = await answer(engine, recorded)
    assert (status, kind) == (200, recorded.headers["content-type"])
    ours, theirs = json.loads(body), recorded.answer
    for one in (ours, theirs):  # their lengths are those of the tokenizer and of the model
        one.pop("tokens", None)
        for data in one.get("data", ()):
            if isinstance(data["embedding"], list):
                del data["embedding"][1:]
    assert shape(ours) == shape(theirs)


@pytest.mark.parametrize("name", [name for name in STREAMS if name.startswith("responses-")])
async def test_the_sequence_numbers_of_a_stream_count_its_events(engine: str, name: str) -> None:
    _, _, body = await answer(engine, recording(name))
    for found in (recording(name).events, events(body)):
        assert [json.loads(event.data)["sequence_number"] for event in found] == list(range(len(found)))
