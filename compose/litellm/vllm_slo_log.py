"""A callback of LiteLLM's proxy that writes the log which `vllm-slo sidecar --follow --follow-format litellm` reads.

In the configuration of the proxy, beside this file: `litellm_settings: {callbacks: vllm_slo_log.log}`. The variable
VLLM_SLO_LITELLM_LOG names the log. Prompts, completions and keys are not written.
"""

import json
import os
from datetime import datetime
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

KEPT = (
    "id",
    "call_type",
    "stream",
    "startTime",
    "endTime",
    "completionStartTime",
    "model_group",
    "prompt_tokens",
    "completion_tokens",
)
"""Keys of LiteLLM's StandardLoggingPayload."""


class Log(CustomLogger):  # type: ignore[misc]
    """Appends one line per request; each line is one write, so several worker processes may share the file."""

    def __init__(self) -> None:
        super().__init__()
        path = os.environ.get("VLLM_SLO_LITELLM_LOG", "/var/log/litellm/requests.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: object, start_time: datetime, end_time: datetime
    ) -> None:
        self._write(kwargs["standard_logging_object"])

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: object, start_time: datetime, end_time: datetime
    ) -> None:
        self._write(kwargs["standard_logging_object"])

    def _write(self, payload: dict[str, Any]) -> None:
        metadata, error = payload.get("metadata") or {}, payload.get("error_information") or {}
        prompt = (metadata.get("usage_object") or {}).get("prompt_tokens_details") or {}
        line = {key: payload.get(key) for key in KEPT} | {
            "max_tokens": (payload.get("model_parameters") or {}).get("max_tokens"),
            "route": metadata.get("user_api_key_request_route"),
            "headers": {k.lower(): v for k, v in (metadata.get("requester_custom_headers") or {}).items()},
            "cached_tokens": prompt.get("cached_tokens"),
            "error_code": error.get("error_code"),
            "error_class": error.get("error_class"),
            "error_message": (error.get("error_message") or "")[:200],
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


log = Log()
