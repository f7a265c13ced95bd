"""The bytes of a response as in vLLM 0.33: server-sent events, unary bodies, usage and metrics."""

import json
from dataclasses import dataclass
from typing import Any

from compose.simulator.request_parser import Endpoint
from compose.simulator.scheduler import FinishReason, Job
from compose.simulator.tokenizer import TOKEN_BYTES

DONE = b"data: [DONE]\n\n"
_PLACEHOLDER = "PIECE"


def chunk(payload: bytes) -> bytes:
    """One chunk of HTTP's chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % dump(body)


def dump(body: Any) -> bytes:
    """JSON without spaces, as vLLM writes it."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The common fields of all parts of one response."""

    endpoint: Endpoint
    id: str
    created: int
    model: str
    fingerprint: str

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def role(self) -> bytes:
        """The first event of a chat stream; empty for completions."""
        if self.endpoint is Endpoint.COMPLETIONS:
            return b""
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        body = self._head("chat.completion.chunk") | {"choices": [choice]}
        return event(body | {"prompt_token_ids": None, "prompt_text": None})

    def piece(self, text: str, finish: FinishReason | None) -> bytes:
        """The event of one token."""
        if self.endpoint is Endpoint.COMPLETIONS:
            choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
            choice |= {"stop_reason": None, "prompt_token_ids": None, "token_ids": None}
            return event(self._head("text_completion") | {"choices": [choice]})
        choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
        if finish is not None:
            choice["stop_reason"] = None
        choice["token_ids"] = None
        return event(self._head("chat.completion.chunk") | {"choices": [choice]})

    def template(self) -> tuple[bytes, bytes]:
        """The bytes before and after the text of a token in its HTTP chunk; every piece is four bytes long."""
        before, after = chunk(self.piece(_PLACEHOLDER[:TOKEN_BYTES], None)).split(
            b'"' + _PLACEHOLDER[:TOKEN_BYTES].encode() + b'"'
        )
        return before + b'"', b'"' + after

    def usage(self, job: Job) -> bytes:
        """The event after the last token, with `include_usage`."""
        kind = "chat.completion.chunk" if self.endpoint is Endpoint.CHAT else "text_completion"
        body = self._head(kind) | {"choices": [], "usage": usage(job)}
        values = {name: value for name, value in timings(job).items() if value is not None}
        return event(body | {"system_fingerprint": self.fingerprint, "metrics": values})

    def unary(self, job: Job, text: str) -> bytes:
        """The body of a response that is not streamed."""
        counts = usage(job)
        counts["prompt_tokens_details"]["multimodal_tokens"] = None
        counts["completion_tokens_details"] = None
        ending = {"logprobs": None, "finish_reason": job.finish, "stop_reason": None, "token_ids": None}
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
        message = {"role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None}
        message |= {"function_call": None, "reasoning": None}
        choice = {"index": 0, "message": message, **ending, "routed_experts": None}
        return dump(self._head("chat.completion") | {"choices": [choice]} | rest)


def usage(job: Job) -> dict[str, Any]:
    """The `usage` object: tokens of prompt and completion, and prefix cache hits."""
    return {
        "prompt_tokens": job.prompt_length,
        "total_tokens": job.prompt_length + job.generated,
        "completion_tokens": job.generated,
        "prompt_tokens_details": {"cached_tokens": job.cached, "created_cache_tokens": 0},
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
