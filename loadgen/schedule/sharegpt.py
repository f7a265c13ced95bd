"""Reads the first exchanges of conversations in the format of ShareGPT, as `vllm bench serve` does."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from exporters.text.errors import UsageError

CHARACTERS_PER_TOKEN = 4
"""The usual ratio of English text, which the sidecar assumes too."""
LEAST_TOKENS = 4
MOST_PROMPT_TOKENS = 1024
MOST_TOKENS = 2048
"""The lengths that `vllm bench serve --dataset-name sharegpt` keeps, of prompt and answer together."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt with its text, and the length of its answer."""

    prompt: str
    prompt_tokens: int
    answer_tokens: int


class _Message(msgspec.Struct):
    text: str = msgspec.field(name="value")


class _Conversation(msgspec.Struct):
    messages: list[_Message] = msgspec.field(name="conversations", default_factory=list)


def read_exchanges(text: str, path: Path) -> list[Exchange]:
    """The first message of each conversation with the length of the second, in the order of the file.

    Conversations of fewer than two messages, and those of other lengths than `vllm bench serve` keeps, are left out.

    Raises:
        UsageError: the file is not a list of conversations, or none is left.
    """
    try:
        conversations = msgspec.json.decode(text, type=list[_Conversation])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: is not in the format of ShareGPT: {error}; write a JSON list of conversations, such as "
            '[{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}]'
        ) from error
    exchanges = list(_exchanges(conversations))
    if not exchanges:
        raise UsageError(
            f"{path}: no conversation can be replayed: it needs two messages of {LEAST_TOKENS} tokens or more, a "
            f"prompt of {MOST_PROMPT_TOKENS} or fewer, and {MOST_TOKENS} or fewer together, at {CHARACTERS_PER_TOKEN} "
            "characters a token"
        )
    return exchanges


def _exchanges(conversations: list[_Conversation]) -> Iterator[Exchange]:
    for conversation in conversations:
        if len(conversation.messages) < 2:
            continue
        prompt, answer = (message.text for message in conversation.messages[:2])
        exchange = Exchange(prompt, _tokens(prompt), _tokens(answer))
        total = exchange.prompt_tokens + exchange.answer_tokens
        enough = min(exchange.prompt_tokens, exchange.answer_tokens) >= LEAST_TOKENS
        if enough and exchange.prompt_tokens <= MOST_PROMPT_TOKENS and total <= MOST_TOKENS:
            yield exchange


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)
