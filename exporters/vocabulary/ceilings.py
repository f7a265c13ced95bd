"""The upper bounds that `vllm-slo roofline` writes as JSON, and that the sidecar reads and exposes."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporters.text.errors import UsageError, system_reason

BATCH = re.compile("[1-9][0-9]{0,8}")
PREFILL, DECODE, KV_TOKENS = "prefill_tokens_per_second", "decode_tokens_per_second", "kv_tokens"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Tokens per second of prefill, and of decode by batch size; tokens that fit into the KV cache."""

    prefill: float
    decode: Mapping[int, float]
    kv_tokens: int

    def decode_of(self, batch: float) -> float:
        """Decode of any batch: the time of a step is linear between two batches, and constant below the smallest.

        Where compute takes over from memory bandwidth between two batches, the result is a little too low.
        """
        times = sorted((size, size / rate) for size, rate in self.decode.items())
        above = min(max(1, bisect_left(times, (batch, 0.0))), len(times) - 1)
        (size, time), (next_size, next_time) = times[max(0, above - 1)], times[above]
        slope = (next_time - time) / (next_size - size) if next_size > size else 0.0
        return min(batch / (time + slope * max(0.0, batch - size)), self.prefill)


def read_json(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file.

    Raises:
        UsageError: the file cannot be read or has other content.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: expected a JSON object, found {type(document).__name__}")
    return document


def read_ceilings(path: Path) -> Ceilings:
    """Read the output of `vllm-slo roofline --format json`.

    Raises:
        UsageError: the file cannot be read or has mistakes; the message lists all of them.
    """
    document = read_json(path)
    decode = document.get(DECODE)
    batches: Mapping[str, Any] = decode if isinstance(decode, dict) else {}
    problems = list(_problems(document, batches))
    if problems:
        advice = f"{path}: create this file with: vllm-slo roofline --format json"
        raise UsageError("\n".join((*(f"{path}: {text}" for text in problems), advice)))
    return Ceilings(document[PREFILL], {int(batch): rate for batch, rate in batches.items()}, document[KV_TOKENS])


def _problems(document: Mapping[str, Any], batches: Mapping[str, Any]) -> Iterator[str]:
    for key in (PREFILL, KV_TOKENS):
        if not _is_positive(document.get(key)):
            yield f"{key}: expected a number above 0, found {document.get(key)!r}"
    if not batches:
        yield f"{DECODE}: expected an object of rates by batch, found {document.get(DECODE)!r}"
    for batch, rate in batches.items():
        if not BATCH.fullmatch(batch):
            yield f"{DECODE}: expected a batch of 1 or more, found {batch!r}"
        if not _is_positive(rate):
            yield f"{DECODE}.{batch}: expected a number above 0, found {rate!r}"


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
