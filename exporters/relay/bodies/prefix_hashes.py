"""Hashes the blocks of a prompt, from its beginning, to show what a prefix cache can share."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Any

import msgspec

from exporters.records.messages import PREFIX_BLOCK
from exporters.relay.bodies.dense_json import TooManyObjectsError, has_many_values
from exporters.relay.bodies.request_body import LONG_BODY, NOT_JSON, count_token_ids, decode_members

MAX_BLOCKS = 512
"""Blocks of a prompt that are hashed: the first 1,048,576 characters."""

SHORT_BODY = 16 * 1024
"""Bytes of a body up to which no thread is needed."""

MAX_OBJECTS = 10_000
"""Messages and parts of a prompt; one with more is hashed as its JSON."""

PrefixHashes = tuple[list[int] | None, int | None]
"""A hash for each whole block, of the block and all before it, and the characters of the prompt; None if unknown."""

_PROMPT = ("system", "instructions", "messages", "input", "prompt")
_FIELDS = ("model", "tools", *_PROMPT)
_TEXTS = ("text", "thinking", "content", "output")
_CALLS = ("name", "arguments", "input", "tool_calls")


def start(data: bytes, salt: bytes, hashing: Executor) -> PrefixHashes | Future[PrefixHashes]:
    """The hashes of the prompt of a body; `hashing` hashes a long one."""
    return hash_blocks(data, salt) if len(data) <= SHORT_BODY else hashing.submit(hash_blocks, data, salt)


def hash_blocks(data: bytes, salt: bytes) -> PrefixHashes:
    """The hashes of the prompt of a body.

    A hash covers salt, model and all text up to the end of its block, so prompts share as many hashes as whole blocks.
    """
    try:
        members = decode_members(data)
        body = {name: _decode_value(bytes(members[name])) for name in _FIELDS if name in members}
        text = prompt_text(body)
    except TooManyObjectsError:
        text = "".join(bytes(members[name]).decode() for name in _FIELDS[1:] if name in members)
    except (*NOT_JSON, ValueError):  # repr refuses an integer of thousands of digits
        return None, None
    digest = hashlib.sha256(salt + f"{body.get('model')}\0".encode())
    hashes = []
    for begin in range(0, min(len(text) // PREFIX_BLOCK, MAX_BLOCKS) * PREFIX_BLOCK, PREFIX_BLOCK):
        digest.update(text[begin : begin + PREFIX_BLOCK].encode())
        hashes.append(int.from_bytes(digest.digest()[:8], "big"))
    return hashes, len(text)


def _decode_value(json: bytes) -> Any:
    """The value; many values are a text, because decoding them would block all threads."""
    if len(json) <= LONG_BODY:
        return msgspec.json.decode(json)
    if count_token_ids(json) is not None:
        return json.translate(None, b"[] \t\r\n").decode() + ","  # as `_texts` of the decoded ids
    return json.decode() if has_many_values(json) else msgspec.json.decode(json)


def prompt_text(body: dict[str, Any]) -> str:
    """Tools and prompt in the order in which chat templates print them; media are represented by a hash.

    Raises:
        TooManyObjectsError: a field has more than MAX_OBJECTS.
    """
    tools = body.get("tools")
    return "".join((repr(tools) if tools else "", *(text for name in _PROMPT for text in _texts(body.get(name)))))


def _texts(value: Any) -> Iterator[str]:
    # Not recursive: in nested generators each text would pass through all of them.
    values, objects = [value], 0
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            if value and isinstance(value[0], int):  # token ids
                yield ",".join(map(str, value)) + ","
            else:
                values += reversed(value)
        elif isinstance(value, dict):
            objects += 1
            if objects > MAX_OBJECTS:
                raise TooManyObjectsError
            role = value.get("role")
            if role is not None:
                yield f"\n{role}\n"
            texts = [inner for name in _TEXTS if (inner := value.get(name))]
            calls = [repr(inner) for name in _CALLS if (inner := value.get(name))]
            if not (role or texts or calls):
                yield hashlib.sha256(repr(value).encode()).hexdigest()
            values += reversed([*texts, *calls])
