"""The GenAI attribute names are those of OpenTelemetry's own package of constants."""

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from exporters.configuration.otlp_endpoints import Semconv
from exporters.sidecar.tracing.request_spans import NAMES

CONSTANTS = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
RENAMED = {"gen_ai.system", "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"}
"""Names of earlier versions, which the package keeps."""


@pytest.mark.parametrize("semconv", Semconv)
def test_each_attribute_name_is_one_of_the_conventions(semconv: Semconv) -> None:
    names = NAMES[semconv]
    assert {names.provider, *names.by_field.values()} <= CONSTANTS


def test_the_latest_version_has_no_renamed_attribute() -> None:
    names = NAMES[Semconv.V1_44]
    assert RENAMED <= CONSTANTS
    assert not RENAMED & {names.provider, *names.by_field.values()}
