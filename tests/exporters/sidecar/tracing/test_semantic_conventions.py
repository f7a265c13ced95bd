"""Emitted attribute names and values are those of OpenTelemetry's conventions, or are listed here with a reason."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from opentelemetry.sdk.resources import Resource
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as latest
from opentelemetry.semconv.attributes import (
    error_attributes,
    http_attributes,
    server_attributes,
    service_attributes,
    url_attributes,
)
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.util.types import AttributeValue

from exporters.configuration.otlp_endpoints import Semconv
from exporters.sidecar.tracing.request_spans import SpanMaker, resource
from exporters.vocabulary.signals import MEASURED, Endpoint, Outcome, Verdict
from tests.support.sample_records import finished

ROOT = Path(__file__).parents[4]
V1_36 = yaml.safe_load((Path(__file__).parent / "genai_1.36.yaml").read_text(encoding="utf-8"))
RENAMED = {"gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"}
"""Names of versions before 1.36, which the packages keep."""

ATTRIBUTES = {
    Semconv.V1_36: set(V1_36["attributes"]) - RENAMED,
    Semconv.V1_44: {value for name, value in vars(latest).items() if name.startswith("GEN_AI_")}
    - {*RENAMED, "gen_ai.system"},
}
OPERATIONS = {
    Semconv.V1_36: set(V1_36["operations"]),
    Semconv.V1_44: {operation.value for operation in latest.GenAiOperationNameValues},
}
PROVIDERS = {
    Semconv.V1_36: set(V1_36["systems"]),
    Semconv.V1_44: {provider.value for provider in latest.GenAiProviderNameValues},
}
OUR_PROVIDERS = {"vllm"}
"""The conventions list hosted services; for others a name of one's own is allowed."""

OUR_OPERATIONS = {
    Endpoint.RERANK: "ranks documents; `retrieval` is a search in a vector store",
    Endpoint.SCORE: "compares texts; there is no operation for it",
    Endpoint.CLASSIFY: "assigns classes; there is no operation for it",
    Endpoint.POOLING: "returns hidden states, which need not be embeddings",
    Endpoint.AUDIO_TRANSCRIPTIONS: "speech to text; `generate_content` is one API of another provider",
    Endpoint.AUDIO_TRANSLATIONS: "as transcriptions",
    Endpoint.TOKENIZE: "no inference, therefore no operation of the conventions",
    Endpoint.DETOKENIZE: "as tokenize",
    Endpoint.COUNT_TOKENS: "as tokenize",
}
"""Operations without a value in the conventions, and the reason. The value is the name of the endpoint."""

GENERAL = {
    value
    for module in (error_attributes, http_attributes, server_attributes, service_attributes, url_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}


def emitted(semconv: Semconv) -> Iterator[dict[str, AttributeValue]]:
    """The attributes of spans with all fields of a record, for each endpoint, and of one that has failed."""
    maker = SpanMaker(semconv, Resource({}), "1", ("engine", 8000))
    for number, api in enumerate((*MEASURED, Endpoint.CHAT_COMPLETIONS)):
        record = finished(
            api=api,
            outcome=Outcome.OK if number < len(MEASURED) else Outcome.TRUNCATED,
            trace_id="0af7651916cd43dd8448eb211c80319c",
            span_id="00f067aa0ba902b7",
            parent_span_id="b7ad6b7169203331",
            parent_sampled=True,
            max_tokens=50,
            temperature=0.5,
            prompt_tokens=7,
            completion_tokens=3,
            cached_tokens=4,
            reasoning_tokens=2,
            finish_reason="stop",
            ttft=0.5,
            queue=0.1,
            prefill=0.1,
            decode=0.5,
            slo={"ttft": Verdict.GOOD},
            goodput=True,
            response_id="chatcmpl-1",
            response_model="tiny-v2",
        )
        for span in maker.spans(record, "0123456789ab"):
            yield dict(span.attributes or {})


def test_the_installed_package_is_of_the_latest_version_of_the_table() -> None:
    assert max(schema.value for schema in Schemas) == f"https://opentelemetry.io/schemas/{max(Semconv).value}.0"


@pytest.mark.parametrize("semconv", Semconv)
def test_each_emitted_genai_attribute_is_one_of_its_version(semconv: Semconv) -> None:
    names = {name for attributes in emitted(semconv) for name in attributes if name.startswith("gen_ai.")}
    assert names - ATTRIBUTES[semconv] == set()
    assert len(names) > 8


@pytest.mark.parametrize("semconv", Semconv)
def test_each_other_attribute_is_a_stable_one_or_has_our_prefix(semconv: Semconv) -> None:
    names = {name for attributes in emitted(semconv) for name in attributes}
    assert {name for name in names if not name.startswith(("gen_ai.", "vllm_slo."))} == {
        "error.type",
        "http.response.status_code",
        "server.address",
        "server.port",
        "url.path",
    }
    assert {name for name in names if not name.startswith(("gen_ai.", "vllm_slo."))} <= GENERAL
    assert {"service.name", "service.version"} <= GENERAL & set(resource("1").attributes)


@pytest.mark.parametrize("semconv", Semconv)
def test_each_operation_is_one_of_its_version_or_ours_with_a_reason(semconv: Semconv) -> None:
    operations = {attributes.get("gen_ai.operation.name") for attributes in emitted(semconv)} - {None}
    ours = {api.value for api in OUR_OPERATIONS}
    assert operations - OPERATIONS[semconv] == ours
    assert operations & OPERATIONS[semconv] == {"chat", "text_completion", "embeddings"}
    assert all(OUR_OPERATIONS.values())


@pytest.mark.parametrize("semconv", Semconv)
def test_the_provider_is_ours_as_long_as_the_conventions_do_not_list_it(semconv: Semconv) -> None:
    name = {Semconv.V1_36: "gen_ai.system", Semconv.V1_44: "gen_ai.provider.name"}[semconv]
    assert {attributes[name] for attributes in emitted(semconv) if name in attributes} == OUR_PROVIDERS
    assert not OUR_PROVIDERS & PROVIDERS[semconv]


def test_the_documentation_has_a_column_with_the_names_of_each_version() -> None:
    page = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    table = page.partition("| record | 1.36 | 1.44 (default) |\n")[2].partition("\n\n")[0]
    for column, semconv in enumerate(Semconv, start=2):
        cells = " ".join(row.split("|")[column] for row in table.splitlines())
        names = {name for attributes in emitted(semconv) for name in attributes if name.startswith("gen_ai.")}
        assert set(re.findall(r"gen_ai\.[\w.]+", cells)) == names
