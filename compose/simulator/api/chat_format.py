"""The bytes of a chat or completions response as in vLLM 0.33: server-sent events, unary bodies, usage and metrics."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compose.simulator.api.chat_request import Endpoint
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.tokenizer import TOKEN_BYTES

DONE = b"data: [DONE]\n\n"
_PLACEHOLDER = "PIECE"[:TOKEN_BYTES]


def chunk(payload: bytes) -> bytes:
    """One chunk of HTTP's chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % dump(body)


def named_event(name: str, body: dict[str, Any]) -> bytes:
    """One server-sent event with an `event:` line."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dump(body))


def dump(body: Any) -> bytes:
    """JSON without spaces, as vLLM writes it."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def around_piece(make_event: Callable[[str], bytes]) -> tuple[bytes, bytes]:
    """The bytes of an event before and after the text of a token, which needs no escaping in JSON."""
    before, after = make_event(_PLACEHOLDER).split(b'"' + _PLACEHOLDER.encode() + b'"')
    return before + b'"', b'"' + after


class Format(ABC):
    """The bytes of a response on one of the APIs."""

    __slots__ = ()

    def opening(self) -> list[bytes]:
        """The events sent while the request is in the queue."""
        return []

    @abstractmethod
    def first(self, job: Job, piece: str) -> list[bytes]:
        """The events before the first token."""

    def token_chunk(self) -> Callable[[bytes, int], bytes]:
        """Makes the HTTP chunk of one token, which is not the last, from its text and its number."""
        # every piece is as long as the placeholder, so the length in the chunk's head is that of each token
        before, after = around_piece(lambda text: chunk(self.token_event(text, 0)))
        return lambda piece, _: before + piece + after

    @abstractmethod
    def token_event(self, text: str, index: int) -> bytes:
        """The event of such a token, whatever its text."""

    @abstractmethod
    def last(self, job: Job, piece: str, text: str) -> list[bytes]:
        """The events of the last token and after it; `text` is the whole completion."""

    @abstractmethod
    def unary(self, job: Job, text: str) -> bytes:
        """The body of a response that is not streamed."""


@dataclass(frozen=True, slots=True)
class ResponseFormat(Format):
    """The common fields of all parts of one response."""

    endpoint: Endpoint
    id: str
    created: int
    model: str
    fingerprint: str
    include_usage: bool

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def first(self, job: Job, piece: str) -> list[bytes]:
        """The role, for chat."""
        if self.endpoint is Endpoint.COMPLETIONS:
            return []
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        body = self._head("chat.completion.chunk") | {"choices": [choice]}
        return [event(body | {"prompt_token_ids": None, "prompt_text": None})]

    def token_event(self, text: str, index: int) -> bytes:
        return self._piece(text, None)

    def _piece(self, text: str, finish: FinishReason | None) -> bytes:
        if self.endpoint is Endpoint.COMPLETIONS:
            choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
            choice |= {"stop_reason": None, "prompt_token_ids": None, "token_ids": None}
            return event(self._head("text_completion") | {"choices": [choice]})
        choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
        if finish is not None:
            choice["stop_reason"] = None
        choice["token_ids"] = None
        return event(self._head("chat.completion.chunk") | {"choices": [choice]})

    def last(self, job: Job, piece: str, text: str) -> list[bytes]:
        events = [self._piece(piece, job.finish)]
        return [*events, self._usage(job), DONE] if self.include_usage else [*events, DONE]

    def _usage(self, job: Job) -> bytes:
        kind = "chat.completion.chunk" if self.endpoint is Endpoint.CHAT else "text_completion"
        body = self._head(kind) | {"choices": [], "usage": usage(job)}
        values = {name: value for name, value in timings(job).items() if value is not None}
        return event(body | {"system_fingerprint": self.fingerprint, "metrics": values})

    def unary(self, job: Job, text: str) -> bytes:
        counts = usage(job)
        counts["prompt_tokens_details"]["multimodal_tokens"] = None
        counts["completion_tokens_details"] = None
        ending = {"logprobs": None, "finish_reason": self._finish(job), "stop_reason": None, "token_ids": None}
        rest = {
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            "usage": counts,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": timings(job) | {"speculative_decoding": None},
        }
        if self.endpoint is Endpoint.COMPLETIONS:
            return dump(self._head("text_completion") | {"choices": [{"index": 0, "text": text, **ending}]} | rest)
        choice = {"index": 0, "message": self._message(text), **ending, "routed_experts": None}
        return dump(self._head("chat.completion") | {"choices": [choice]} | rest)

    def _finish(self, job: Job) -> str:
        return job.finish

    def _message(self, text: str) -> dict[str, Any]:
        return assistant_message(text)


def assistant_message(text: str, **tool_calls: Any) -> dict[str, Any]:
    """The message of a unary chat response."""
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None}
    return message | {"function_call": None, **tool_calls, "reasoning": None}


def usage(job: Job) -> dict[str, Any]:
    """The `usage` object: tokens of prompt and completion, and prefix cache hits."""
    return {
        "prompt_tokens": job.prompt_length,
        "total_tokens": job.prompt_length + job.generated,
        "completion_tokens": job.generated,
        "prompt_tokens_details": {"cached_tokens": job.cached, "created_cache_tokens": job.cache_written},
    }


def timings(job: Job) -> dict[str, float | None]:
    """The per-request `metrics`; their time to first token counts from the time the request was scheduled."""
    if job.scheduled_at is None or job.first_token_at is None or job.last_token_at is None:
        raise ValueError("a request has no timings before its first token")
    prefill, decode = job.first_token_at - job.scheduled_at, job.last_token_at - job.first_token_at
    return {
        "time_to_first_token_ms": 1000 * prefill,
        "generation_time_ms": 1000 * decode,
        "queue_time_ms": 1000 * (job.scheduled_at - job.queued_at),
        "mean_itl_ms": 1000 * decode / (job.generated - 1) if job.generated > 1 else None,
        "tokens_per_second": job.generated / (prefill + decode),
    }
