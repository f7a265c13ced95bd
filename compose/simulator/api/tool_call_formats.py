"""The bytes of a response that calls a tool as in vLLM, in each API."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compose.simulator.api.chat_format import DONE, ResponseFormat, assistant_message, event, named_event
from compose.simulator.api.messages_format import MessagesFormat, messages_event
from compose.simulator.api.responses_format import ResponsesFormat, responses_event
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.structured_completion import ToolCall


@dataclass(frozen=True, slots=True)
class ChatToolFormat(ResponseFormat):
    """A response of the chat API; a call that `tool_choice` names ends with the reason `stop`."""

    call_id: str
    tool: ToolCall

    def first(self, job: Job, piece: str) -> list[bytes]:
        """The role and the name of the tool."""
        call = {"id": self.call_id, "type": "function", "index": 0, "function": {"name": self.tool.name}}
        return [*ResponseFormat.first(self, job, piece), self._call(call)]

    def token_event(self, text: str, index: int) -> bytes:
        return self._call({"index": 0, "function": {"arguments": text}})

    def last(self, job: Job, piece: str, text: str) -> list[bytes]:
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": self._finish(job)}
        end = event(
            self._head("chat.completion.chunk") | {"choices": [choice | {"stop_reason": None, "token_ids": None}]}
        )
        events = [self.token_event(piece, 0), end] if piece else [end]
        return [*events, self._usage(job), DONE] if self.include_usage else [*events, DONE]

    def _call(self, call: Mapping[str, Any]) -> bytes:
        choice = {"index": 0, "delta": {"content": None, "tool_calls": [call]}, "logprobs": None, "finish_reason": None}
        return event(self._head("chat.completion.chunk") | {"choices": [choice | {"token_ids": None}]})

    def _finish(self, job: Job) -> str:
        return "tool_calls" if job.finish is FinishReason.STOP and not self.tool.named else job.finish

    def _message(self, text: str) -> dict[str, Any]:
        call = {"id": self.call_id, "type": "function", "function": {"name": self.tool.name, "arguments": text}}
        return assistant_message("", tool_calls=[call])


@dataclass(frozen=True, slots=True)
class ResponsesToolFormat(ResponsesFormat):
    """A response of the Responses API, with one item: the call."""

    call_id: str
    tool: ToolCall

    def first(self, job: Job, piece: str) -> list[bytes]:
        """The call without its arguments."""
        return [responses_event(2, "response.output_item.added", item=self._call("", "in_progress"), output_index=0)]

    def token_event(self, text: str, index: int) -> bytes:
        return self._arguments(3 + index, text)

    def last(self, job: Job, piece: str, text: str) -> list[bytes]:
        numbers = itertools.count(3 + job.chunks - 1)
        events = [self._arguments(next(numbers), piece)] if piece else []
        done = {"arguments": text, "item_id": self.item_id, "output_index": 0, "sequence_number": next(numbers)}
        name = "response.function_call_arguments.done"
        (item,) = output = self._output(text)
        return [
            *events,
            named_event(name, done | {"type": name, "name": self.tool.name}),
            responses_event(next(numbers), "response.output_item.done", item=item, output_index=0),
            responses_event(next(numbers), "response.completed", response=self._response(output, job)),
        ]

    def _arguments(self, number: int, text: str) -> bytes:
        name = "response.function_call_arguments.delta"
        return responses_event(number, name, delta=text, item_id=self.item_id, output_index=0)

    def _output(self, text: str) -> list[dict[str, Any]]:
        return [self._call(text, "completed")]

    def _call(self, arguments: str, status: str) -> dict[str, Any]:
        item = {"arguments": arguments, "call_id": self.call_id, "name": self.tool.name, "type": "function_call"}
        return item | {"id": self.item_id, "async": None, "caller": None, "namespace": None, "status": status}


@dataclass(frozen=True, slots=True)
class MessagesToolFormat(MessagesFormat):
    """A response of the Messages API, with one block: the call."""

    call_id: str
    tool: ToolCall

    def first(self, job: Job, piece: str) -> list[bytes]:
        """The block begins with an empty input, also of a completion without text."""
        return MessagesFormat.first(self, job, "{}")

    def token_event(self, text: str, index: int) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": text}
        return messages_event("content_block_delta", delta=delta, index=0)

    def _stop_reason(self, job: Job) -> str:
        return "max_tokens" if job.finish is FinishReason.LENGTH else "tool_use"

    def _has_block(self, text: str) -> bool:
        return True

    def _block(self, text: str) -> dict[str, Any]:
        """Arguments that are not JSON, with which vLLM fails, are an empty input."""
        try:
            arguments = json.loads(text)
        except ValueError:
            arguments = {}
        return {"type": "tool_use", "id": self.call_id, "name": self.tool.name, "input": arguments}
