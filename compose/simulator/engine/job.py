"""One request in the engine."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class FinishReason(StrEnum):
    """The `finish_reason` of a request."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(slots=True, eq=False)
class Job:
    """One request in the engine; times are in seconds.

    `tokens` are those of the prompt, and the generated ones that `all_tokens` has added. Without `generate`, tokens are
    counted only; `hashes` then has those of all blocks that the request will fill, of which the first `shared` may be
    those of other requests.
    """

    tokens: list[int]
    prompt_length: int
    output_length: int
    finish: FinishReason
    generate: Callable[[int], int] | None  # the n-th output token, from 0
    priority: int = 0  # lower ones first, with the policy `priority`
    pooling: bool = False  # ends with its prefill, whose token is not output
    queued_at: float = 0.0
    scheduled_at: float | None = None  # for the first time, as in vLLM
    first_token_at: float | None = None
    last_token_at: float | None = None
    generated: int = 0  # output tokens
    computed: int = 0  # tokens whose keys and values are in the cache
    cached: int = 0  # prompt tokens found in the prefix cache at admission
    cache_written: int = 0  # prompt tokens that this job adds to the prefix cache
    chunks: int = 0  # steps with output; with speculative decoding fewer than its tokens
    gaps: "array[float]" = field(default_factory=lambda: array("d"))  # between them
    preemptions: int = 0
    admission: int = 0  # number of its last admission
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)  # of the full blocks
    shared: int | None = None
    registered: int = 0  # blocks added to the prefix cache
    counted: int = 0  # steps of the batch that the other fields include

    @property
    def length(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.prompt_length + self.generated

    def sent_until(self, now: float) -> tuple[float | None, float | None, "array[float]"]:
        """The times of the first and the last chunk that was sent by `now`, and the gaps between chunks.

        The scheduler has the chunks of the step that runs; call this once, as it removes them.
        """
        if self.first_token_at is None or self.last_token_at is None or self.first_token_at > now:
            return None, None, array("d")
        if self.last_token_at > now:
            self.last_token_at -= self.gaps.pop()
        return self.first_token_at, self.last_token_at, self.gaps

    def all_tokens(self) -> list[int]:
        """The tokens of the prompt and of the output so far."""
        if self.generate is not None:
            self.tokens.extend(map(self.generate, range(len(self.tokens) - self.prompt_length, self.generated)))
        return self.tokens

    def generate_chunk(self, count: int, at: float) -> float | None:
        """Add output tokens that are sent together; returns the time since those before."""
        self.generated += count
        self.chunks += 1
        gap = None
        if self.last_token_at is None:
            self.first_token_at = at
        else:
            gap = at - self.last_token_at
            self.gaps.append(gap)
        self.last_token_at = at
        return gap
