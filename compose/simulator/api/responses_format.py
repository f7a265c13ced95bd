"""The bytes of a Responses response as in vLLM: server-sent events with sequence numbers, and unary bodies."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compose.simulator.api.chat_format import Format, around_piece, chunk, dump, named_event, timings
from compose.simulator.engine.job import FinishReason, Job

_FIRST_DELTA = 4
"""The sequence number of the first token: two events precede the item, two open it."""
_STATUS = {FinishReason.STOP: "completed", FinishReason.LENGTH: "incomplete"}


@dataclass(frozen=True, slots=True)
class ResponsesFormat(Format):
    """The common fields of all parts of one response; `request` is the body of the request."""

    id: str
    item_id: str
    created: int
    model: str
    request: Mapping[str, Any]
    max_tokens: int

    def opening(self) -> list[bytes]:
        response = self._response([])
        return [
            responses_event(number, f"response.{name}", response=response)
            for number, name in enumerate(("created", "in_progress"))
        ]

    def first(self, job: Job, piece: str) -> list[bytes]:
        """A completion without text has no output item."""
        if not piece:
            return []
        item = self._item("in_progress", [])
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        return [
            responses_event(2, "response.output_item.added", item=item, output_index=0),
            responses_event(3, "response.content_part.added", part=part, **self._place()),
        ]

    def token_chunk(self) -> Callable[[bytes, int], bytes]:
        before, after = around_piece(lambda text: self._delta(_FIRST_DELTA, text))
        middle, end = after.split(b'"sequence_number":%d' % _FIRST_DELTA)
        middle += b'"sequence_number":'

        def token(piece: bytes, index: int) -> bytes:
            return chunk(b"%b%b%b%d%b" % (before, piece, middle, _FIRST_DELTA + index, end))

        return token

    def token_event(self, text: str, index: int) -> bytes:
        return self._delta(_FIRST_DELTA + index, text)

    def _delta(self, number: int, text: str) -> bytes:
        return responses_event(number, "response.output_text.delta", delta=text, logprobs=[], **self._place())

    def last(self, job: Job, piece: str, text: str) -> list[bytes]:
        numbers = itertools.count(_FIRST_DELTA + job.chunks - 1 if text else 2)
        output = self._output(text)
        events = [self._delta(next(numbers), piece)] if piece else []
        for item in output:
            part = item["content"][0]
            events += [
                responses_event(next(numbers), "response.output_text.done", text=text, logprobs=[], **self._place()),
                responses_event(next(numbers), "response.content_part.done", part=part, **self._place()),
                responses_event(next(numbers), "response.output_item.done", item=item, output_index=0),
            ]
        # vLLM sends this event for an incomplete response too
        return [*events, responses_event(next(numbers), "response.completed", response=self._response(output, job))]

    def unary(self, job: Job, text: str) -> bytes:
        return dump(self._response(self._output(text), job))

    def _place(self) -> dict[str, Any]:
        return {"content_index": 0, "item_id": self.item_id, "output_index": 0}

    def _item(self, status: str, content: list[Any]) -> dict[str, Any]:
        item = {"id": self.item_id, "content": content, "role": "assistant", "status": status}
        return item | {"type": "message", "phase": None}

    def _output(self, text: str) -> list[dict[str, Any]]:
        part: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        return [self._item("completed", [part])] if text else []

    def _response(self, output: list[dict[str, Any]], ended: Job | None = None) -> dict[str, Any]:
        status = "in_progress" if ended is None else _STATUS[ended.finish]
        body = self.request
        return {
            "id": self.id,
            "created_at": self.created,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata"),
            "model": self.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "temperature": body.get("temperature", 1.0),
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": [_tool(tool) for tool in body.get("tools") or []],
            "top_p": body.get("top_p", 1.0),
            "background": False,
            "max_output_tokens": self.max_tokens,
            "max_tool_calls": body.get("max_tool_calls"),
            "previous_response_id": None,
            "prompt": None,
            "reasoning": body.get("reasoning"),
            "service_tier": body.get("service_tier", "auto"),
            "status": status,
            "text": body.get("text"),
            "top_logprobs": None,
            "truncation": body.get("truncation", "disabled"),
            "usage": None if ended is None else _usage(ended),
            "user": body.get("user"),
            **({} if ended is None else {"metrics": timings(ended) | {"speculative_decoding": None}}),
            "presence_penalty": body.get("presence_penalty", 0.0),
            "frequency_penalty": body.get("frequency_penalty", 0.0),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }


def responses_event(number: int, name: str, **fields: Any) -> bytes:
    """One event, with its fields in alphabetical order, as vLLM sends it."""
    return named_event(name, dict(sorted((fields | {"sequence_number": number, "type": name}).items())))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of the request, with the fields that the client left out, as vLLM repeats it."""
    names = ("name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading", "description")
    return {name: tool.get(name) for name in (*names, "output_schema")}


def _usage(job: Job) -> dict[str, Any]:
    return {
        "input_tokens": job.prompt_length,
        "input_tokens_details": {
            "cached_tokens": job.cached,
            "cache_write_tokens": job.cache_written,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": job.generated,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": job.prompt_length + job.generated,
    }
