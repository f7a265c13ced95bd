"""Requests as a Mooncake trace: JSON lines of arrival time, lengths, and ids of blocks that prompts share."""

from collections.abc import Iterable
from datetime import datetime
from itertools import count
from typing import BinaryIO

import msgspec

from exporters.vocabulary.signals import WARM_UP

BLOCK_TOKENS = 512
"""Tokens of a block in the format; a block of the request log has 2,048 characters, about as many tokens."""


class _Request(msgspec.Struct):
    time: datetime
    request_class: str = msgspec.field(default="", name="class")
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prefix_hashes: list[str] | None = None


_decode = msgspec.json.Decoder(_Request).decode


def mooncake_lines(lines: Iterable[bytes], out: BinaryIO) -> int:
    """Write the requests by arrival, with milliseconds since the first; returns how many lack tokens or hashes.

    A request has an id for each 512 tokens that it began. Equal ids mean that the prompts are equal up to the end of
    the block. Blocks that are not hashed, as the last, incomplete one, have an id of their own. The class `warm-up` is
    left out.
    """
    requests = [request for request in map(_decode, lines) if request.request_class != WARM_UP]
    known = sorted(
        (
            (request.time, request.prompt_tokens, request.completion_tokens, request.prefix_hashes)
            for request in requests
            if request.prompt_tokens and request.completion_tokens and request.prefix_hashes is not None
        ),
        key=lambda request: request[0],
    )
    ids: dict[str, int] = {}
    new = count()
    for time, prompt, completion, hashes in known:
        whole = hashes[: -(-prompt // BLOCK_TOKENS)]
        blocks = [ids[block] if block in ids else ids.setdefault(block, next(new)) for block in whole]
        blocks += [next(new) for _ in range(-(-prompt // BLOCK_TOKENS) - len(blocks))]
        row = {
            "timestamp": round((time - known[0][0]).total_seconds() * 1000),
            "input_length": prompt,
            "output_length": completion,
            "hash_ids": blocks,
        }
        out.write(msgspec.json.encode(row) + b"\n")
    return len(requests) - len(known)
