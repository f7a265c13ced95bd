"""The official clients of OpenAI and Anthropic against the simulator."""

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest

from tests.support.simulator import simulator

pytestmark = pytest.mark.slow

QUESTION = "Name three cities in Europe."
SYSTEM = "Answer briefly. " * 20


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    async with simulator("tiny") as url:
        yield url


@pytest.fixture
async def oai(engine: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{engine}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def claude(engine: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=engine, api_key="none", max_retries=0) as client:
        yield client


async def test_openai_responses(oai: openai.AsyncOpenAI) -> None:
    response = await oai.responses.create(model="tiny", instructions=SYSTEM, input=QUESTION, max_output_tokens=8)
    assert response.output_text.startswith("[simulated] ")
    assert (response.status, response.incomplete_details and response.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert response.usage is not None
    assert response.usage.output_tokens == 8
    again = await oai.responses.create(model="tiny", instructions=SYSTEM, input=QUESTION, max_output_tokens=8)
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens == response.usage.input_tokens // 16 * 16


async def test_openai_responses_stream(oai: openai.AsyncOpenAI) -> None:
    conversation = [{"role": "user", "content": QUESTION}]
    async with oai.responses.stream(model="tiny", input=conversation, max_output_tokens=8) as stream:  # type: ignore[arg-type]  # a plain message
        events = [event async for event in stream]
        response = await stream.get_final_response()
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) == 8
    assert "".join(deltas) == response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert response.usage is not None
    assert response.usage.output_tokens == 8


async def test_openai_responses_are_not_stored(oai: openai.AsyncOpenAI) -> None:
    response = await oai.responses.create(model="tiny", input=QUESTION, max_output_tokens=1)
    with pytest.raises(openai.NotFoundError, match=f"Response with id '{response.id}' not found"):
        await oai.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        await oai.responses.cancel(response.id)
    with pytest.raises(openai.BadRequestError, match="does not support the background mode"):
        await oai.responses.create(model="tiny", input=QUESTION, background=True)


async def test_openai_chat(oai: openai.AsyncOpenAI) -> None:
    answer = await oai.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": QUESTION}], max_completion_tokens=8
    )
    assert answer.choices[0].finish_reason == "length"
    assert (answer.choices[0].message.content or "").startswith("[simulated] ")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


async def test_openai_chat_stream(oai: openai.AsyncOpenAI) -> None:
    stream = await oai.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": QUESTION}],
        max_completion_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text.startswith("[simulated] ")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8


async def test_openai_completions(oai: openai.AsyncOpenAI) -> None:
    answer = await oai.completions.create(model="tiny", prompt=QUESTION, max_tokens=8)
    stream = await oai.completions.create(model="tiny", prompt=QUESTION, max_tokens=8, stream=True)
    texts = [chunk.choices[0].text async for chunk in stream]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(texts) == 8
    assert answer.choices[0].text.startswith("[simulated] ")
    assert "".join(texts).startswith("[simulated] ")


async def test_openai_errors(oai: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        await oai.responses.create(model="nope", input=QUESTION)
    assert (refusal.value.type, refusal.value.param) == ("NotFoundError", "model")
    with pytest.raises(openai.BadRequestError, match="maximum context length is 4096 tokens"):
        await oai.responses.create(model="tiny", input="hello " * 5000)


async def test_anthropic_messages(claude: anthropic.AsyncAnthropic) -> None:
    message = await claude.messages.create(
        model="tiny", system=SYSTEM, messages=[{"role": "user", "content": QUESTION}], max_tokens=8
    )
    block = message.content[0]
    assert block.type == "text"
    assert block.text.startswith("[simulated] ")
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 8)
    counted = await claude.messages.count_tokens(
        model="tiny", system=SYSTEM, messages=[{"role": "user", "content": QUESTION}]
    )
    assert message.usage.cache_creation_input_tokens == counted.input_tokens // 16 * 16
    assert message.usage.input_tokens == counted.input_tokens % 16


async def test_anthropic_messages_stream(claude: anthropic.AsyncAnthropic) -> None:
    async with claude.messages.stream(
        model="tiny", messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}]}], max_tokens=8
    ) as stream:
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()
    assert len(texts) == 8
    assert "".join(texts) == "".join(block.text for block in message.content if block.type == "text")
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 8)


async def test_anthropic_errors(claude: anthropic.AsyncAnthropic) -> None:
    question: anthropic.types.MessageParam = {"role": "user", "content": QUESTION}
    with pytest.raises(anthropic.NotFoundError) as refusal:
        await claude.messages.create(model="nope", messages=[question], max_tokens=8)
    message = "The model `nope` does not exist. Valid aliases: tiny."
    assert refusal.value.body == {"type": "error", "error": {"type": "NotFoundError", "message": message}}
    long: anthropic.types.MessageParam = {"role": "user", "content": "hello " * 5000}
    with pytest.raises(anthropic.BadRequestError, match="maximum context length is 4096 tokens"):
        await claude.messages.count_tokens(model="tiny", messages=[long])
