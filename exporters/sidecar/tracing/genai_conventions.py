"""The GenAI attribute names of spans, in one table per version of OpenTelemetry's conventions."""

from dataclasses import dataclass

from exporters.configuration.otlp_endpoints import Semconv
from exporters.vocabulary.signals import GENERATING, Endpoint

OPERATION = "gen_ai.operation.name"
REQUEST_MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"

PROVIDER = "vllm"
"""The value of the provider attribute; the conventions list only hosted services."""

_OPERATIONS = {**dict.fromkeys(GENERATING, "chat"), Endpoint.COMPLETIONS: "text_completion"}


@dataclass(frozen=True, slots=True)
class AttributeNames:
    """Attribute names of one version that depend on the version; `by_field` maps fields of a record to names."""

    provider: str
    by_field: dict[str, str]


_IN_ALL_VERSIONS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "response_id": "gen_ai.response.id",
    "response_model": "gen_ai.response.model",
}
NAMES = {
    Semconv.V1_36: AttributeNames("gen_ai.system", _IN_ALL_VERSIONS),
    Semconv.V1_44: AttributeNames(
        "gen_ai.provider.name",
        {
            **_IN_ALL_VERSIONS,
            "stream": "gen_ai.request.stream",
            "ttft": "gen_ai.response.time_to_first_chunk",
            "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
            "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
        },
    ),
}


def operation(api: Endpoint) -> str:
    """The value of `OPERATION`; without a value in the conventions it is the name of the endpoint, such as `rerank`."""
    return _OPERATIONS.get(api, api.value)
