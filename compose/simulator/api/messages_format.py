"""The bytes of a Messages response as in vLLM: server-sent events, unary bodies and errors."""

from dataclasses import dataclass
from typing import Any

from compose.simulator.api.chat_format import Format, dump, named_event
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.request import FieldError, RequestError

_STOP_REASONS = {FinishReason.STOP: "end_turn", FinishReason.LENGTH: "max_tokens"}


@dataclass(frozen=True, slots=True)
class MessagesFormat(Format):
    """The common fields of all parts of one response."""

    id: str
    model: str

    def first(self, job: Job, piece: str) -> list[bytes]:
        """A completion without text has no content block."""
        message = self._message([]) | {"stop_reason": None, "stop_sequence": None}
        # at this time vLLM reports the whole prompt as input, and the cached tokens only at the end
        message["usage"] = {"input_tokens": job.prompt_length, "output_tokens": 0}
        start = messages_event("message_start", message=message)
        block = messages_event("content_block_start", content_block=self._block(""), index=0)
        return [start, block] if piece else [start]

    def token_event(self, text: str, index: int) -> bytes:
        delta = {"type": "text_delta", "text": text}
        return messages_event("content_block_delta", delta=delta, index=0)

    def last(self, job: Job, piece: str, text: str) -> list[bytes]:
        """Sends no `ping`, as vLLM."""
        delta = {"stop_reason": self._stop_reason(job), "stop_sequence": None}
        return [
            *([self.token_event(piece, 0)] if piece else []),
            *([messages_event("content_block_stop", index=0)] if self._has_block(text) else []),
            messages_event("message_delta", delta=delta, usage=_usage(job)),
            messages_event("message_stop"),
        ]

    def unary(self, job: Job, text: str) -> bytes:
        """A completion without text has an empty block."""
        return dump(self._message([self._block(text)]) | {"stop_reason": self._stop_reason(job), "usage": _usage(job)})

    def _message(self, content: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "content": content, "model": self.model}

    def _stop_reason(self, job: Job) -> str:
        return _STOP_REASONS[job.finish]

    def _has_block(self, text: str) -> bool:
        return bool(text)

    def _block(self, text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}


def error_body(error: RequestError) -> dict[str, Any]:
    """The body of an error; vLLM rejects a field that is missing or of a wrong type in OpenAI's format."""
    if isinstance(error, FieldError):
        return error.body
    inner = error.body["error"]
    return {"type": "error", "error": {"type": inner["type"], "message": inner["message"]}}


def messages_event(name: str, **fields: Any) -> bytes:
    return named_event(name, {"type": name} | fields)


def _usage(job: Job) -> dict[str, Any]:
    return {
        "input_tokens": job.prompt_length - job.cached - job.cache_written,
        "output_tokens": job.generated,
        "cache_creation_input_tokens": job.cache_written,
        "cache_read_input_tokens": job.cached,
    }
