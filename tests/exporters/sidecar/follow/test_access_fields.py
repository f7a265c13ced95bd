"""Field maps of access logs: the shipped ones, and every mistake of a file in one message."""

from pathlib import Path

import pytest

from exporters.sidecar.follow.access_fields import SHIPPED, Value, load
from exporters.text.errors import UsageError
from exporters.vocabulary.slo_file import Measure

MISTAKES = """
version: 2
fields:
  start: {field: start_time, unit: ns}
  staus: code
  path: {unit: s}
outcomes:
  - {status: "499"}
  - {outcome: clientabort, status: "499"}
  - {outcome: client_abort, status: "4("}
  - {outcome: client_abort}
"""


@pytest.mark.parametrize(
    "name, measures",
    [
        pytest.param("nginx", {Measure.AVAILABILITY, Measure.E2E}, id="nginx"),
        pytest.param("envoy", {Measure.AVAILABILITY, Measure.E2E}, id="envoy"),
        pytest.param("litellm", {Measure.AVAILABILITY, Measure.E2E, Measure.TTFT, Measure.TPOT}, id="litellm"),
    ],
)
def test_a_shipped_map_says_what_can_be_judged(name: str, measures: set[Measure]) -> None:
    assert load(SHIPPED / f"{name}.yaml").judged == measures


def test_a_value_in_a_nested_object_is_found_and_a_missing_one_has_its_default() -> None:
    fields = load(SHIPPED / "litellm.yaml").fields
    assert fields[Value.TENANT].text({"headers": {"x-tenant": "a"}}) == "a"
    assert fields[Value.TENANT].text({"headers": None}) == ""
    assert fields[Value.STATUS].number({"error_code": ""}) == 200


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.yaml"
    path.write_text(MISTAKES)
    with pytest.raises(UsageError) as error:
        load(path)
    assert str(error.value).replace(f"{path}:", "").splitlines() == [
        "2:10: version: unknown version '2'; this release reads 1",
        "4:3: fields: status is missing",
        "4:3: fields: two of start, end and duration are required",
        "4:36: fields.start.unit: unknown unit 'ns'; did you mean 's'?",
        "5:3: fields.staus: unknown key; did you mean 'status'?",
        "6:9: fields.path: field is missing",
        "6:10: fields.path.unit: unknown key; known: field, default",
        "8:5: outcomes[0]: expected an outcome and patterns of fields, found a mapping without the key outcome",
        "9:15: outcomes[1].outcome: unknown outcome 'clientabort'; did you mean 'client_abort'?",
        "10:37: outcomes[2].status: '4(' is not a regular expression: missing ), unterminated subpattern at position 1",
        "11:5: outcomes[3]: names no field, so that it would apply to every line; add a pattern, such as status: '499'",
    ]
