"""The JSON Schema agrees with the reader of SLO files: the same keys and defaults, and the same rejected values."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.check import json_schema
from compose.cli import main
from exporters.text import yaml_reader
from exporters.text.yaml_reader import FileError
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SHIPPED, loads
from tests.support.promtool import ROOT
from tests.support.slo_files import MINIMAL, MISTAKES

jsonschema = pytest.importorskip("jsonschema")

SCHEMA: dict[str, Any] = json.loads(json_schema.render())

EVERY_KEY = """\
version: 1
period: 30d
scrape_interval: 15s
first_token_timeout: 60s
trust_request_start: true
scrape_job: [monitoring/sidecar, b]
group_by: [cluster, namespace]
labels: {team: ml, tier: 1}
source: engine
engine: {version: 0.25, job: vllm}
tenants: {header: x-team, allow: [a, 7]}
classes:
  - {name: short, prompt_tokens: "<512", max_tokens: " <= 512 ", route: chat_completions}
  - {name: vectors, route: [embeddings, rerank]}
slos:
  - {name: a, classes: [short, other], signal: itl_p95, threshold: 1m30.5s, objective: 99.95%, unary: e2e}
  - {name: b, classes: [short], signal: availability, objective: 0.1 %, rejected: bad, labels: {service: chat}}
alerting:
  min_events: {page: 5, ticket: 5}
  min_bad: 1
  per_tenant: true
  cold_start: 1h
  severities: {page: critical, ticket: warning}
  min_serving: 75 %
  alerts: {LLMSidecarDown: {severity: ticket, for: 10m, labels: {team: ml}, enabled: true}}
"""


def fits(rules: Mapping[str, Any], value: Any) -> bool:
    return bool(jsonschema.Draft7Validator(rules).is_valid(value))


def test_the_committed_schema_is_up_to_date() -> None:
    committed = ROOT / "alerts/generated/slos.schema.json"
    assert committed.read_text(encoding="utf-8") == json_schema.render(), "run: make generate"
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", [SHIPPED, ROOT / "compose/slos.yaml"], ids=["alerts", "compose"])
def test_the_shipped_files_are_valid(path: Any) -> None:
    assert fits(SCHEMA, yaml.safe_load(path.read_text(encoding="utf-8")))


def test_a_file_with_every_key_is_valid_and_read() -> None:
    loads(EVERY_KEY)
    assert fits(SCHEMA, yaml.safe_load(EVERY_KEY))


# Mistakes across keys, and mistakes that a YAML parser resolves before validation; `alerts check` reports these.
BEYOND_A_SCHEMA = {
    "period too short for its scrapes",
    "key given twice",
    "class named twice",
    "unknown class",
    "rules per tenant without tenants",
    "a label that group_by adds",
    "a label of one alert that group_by adds",
    "one severity for pages and tickets",
}


@pytest.mark.parametrize("right,wrong,_message", MISTAKES)
def test_a_structural_mistake_is_rejected(
    right: str, wrong: str, _message: str, request: pytest.FixtureRequest
) -> None:
    text = MINIMAL.replace(right, wrong, 1)
    if request.node.callspec.id == "integer without digits":  # no value for a YAML parser
        with pytest.raises(ValueError, match="invalid literal"):
            yaml.safe_load(text)
        return
    value = yaml.safe_load(text)
    assert fits(SCHEMA, yaml.safe_load(MINIMAL))
    assert fits(SCHEMA, value) == (request.node.callspec.id in BEYOND_A_SCHEMA)


def test_the_schema_has_exactly_the_keys_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    keys_read: dict[str, tuple[set[str], set[str]]] = {}
    read = yaml_reader.Node.fields

    def record(
        node: yaml_reader.Node, known_keys: Iterable[str], required: Iterable[str] = ()
    ) -> dict[str, yaml_reader.Node]:
        path = re.sub(r"\[\d+\]", "[]", node.path).replace(AlertName.SIDECAR_DOWN, "*")
        keys_read[path] = set(known_keys), set(required)
        return read(node, known_keys, required)

    monkeypatch.setattr(yaml_reader.Node, "fields", record)
    loads(EVERY_KEY)
    assert dict(mappings("", SCHEMA)) == keys_read


def mappings(path: str, rules: Mapping[str, Any]) -> Iterable[tuple[str, tuple[set[str], set[str]]]]:
    if "items" in rules:
        yield from mappings(f"{path}[]", rules["items"])
    elif properties := rules.get("properties"):
        yield path, (set(properties), set(rules.get("required", ())))
        for key, value in properties.items():
            yield from mappings(f"{path}.{key}" if path else key, value)
    elif isinstance(values := rules.get("additionalProperties"), dict):
        yield from mappings(f"{path}.*", values)


def written_out(rules: Mapping[str, Any], value: Any) -> Any:
    """The value with every default of the schema as an explicit key."""
    if "items" in rules:
        return [written_out(rules["items"], item) for item in value]
    if "properties" not in rules:
        return value
    return {
        key: written_out(each, value.get(key, each.get("default", {})))
        for key, each in rules["properties"].items()
        if key in value or "default" in each or "properties" in each
    }


def test_an_explicit_default_changes_nothing() -> None:
    least = yaml.safe_load(MINIMAL.replace("scrape_interval: 15s\n", ""))
    explicit = written_out(SCHEMA, least)
    assert explicit["alerting"]["min_events"] == {"page": 50, "ticket": 100}
    assert loads(json.dumps(explicit)) == loads(json.dumps(least))


def test_the_docs_explain_every_key_with_its_default() -> None:
    tables = (ROOT / "docs/slo-file.md").read_text(encoding="utf-8").partition("## Check")[0]
    prefixes = {"key": "", "key of a class": "classes[].", "key of an SLO": "slos[]."}
    documented: dict[str, str] = {}
    prefix = ""
    for row in re.findall(r"^\| (.*) \|$", tables, re.MULTILINE):
        key, _meaning, default = row.split(" | ")
        if key in prefixes:
            prefix = prefixes[key]
        else:
            documented[prefix + key.strip("`")] = default
    declared = dict(leaves("", SCHEMA))
    assert documented.keys() == declared.keys()
    assert {key for key, default in documented.items() if default == "required"} == {
        key for key, (_, required) in declared.items() if required
    }
    with_default = {key for key, (default, _) in declared.items() if default not in (None, [], {})}
    assert {key for key, default in documented.items() if "`" in default} == with_default
    for key, (default, _) in declared.items():
        if default is not None:
            text = (
                f"`{default if isinstance(default, str) else json.dumps(default)}`"
                if default not in ([], {})
                else "none"
            )
            assert documented[key].startswith(text), key


def leaves(path: str, rules: Mapping[str, Any]) -> Iterable[tuple[str, tuple[Any, bool]]]:
    """Each key whose value is not a mapping: its default, and whether it is required."""
    for key, value in rules["properties"].items():
        inner = f"{path}{key}"
        if "properties" in value:
            yield from leaves(f"{inner}.", value)
            continue
        yield inner, (value.get("default"), key in rules.get("required", ()))
        if "properties" in (items := value.get("items", {})):
            yield from leaves(f"{inner}[].", items)


KEYS = SCHEMA["properties"]
CLASS_KEYS, SLO_KEYS = (KEYS[key]["items"]["properties"] for key in ("classes", "slos"))
SLO = "slos: [{{name: a, classes: [short], signal: availability, objective: {}}}]"
PATTERNS = [
    pytest.param(KEYS["period"], "alerting: {{cold_start: {}}}", id="duration"),
    pytest.param(KEYS["first_token_timeout"], "first_token_timeout: {}", id="timeout"),
    pytest.param(KEYS["tenants"]["properties"]["header"], "tenants: {{header: {}}}", id="header"),
    pytest.param(KEYS["engine"]["properties"]["version"], "engine: {{version: {}}}", id="version"),
    pytest.param(CLASS_KEYS["name"], "classes: [{{name: {}}}, {{name: short}}]", id="name"),
    pytest.param(CLASS_KEYS["max_tokens"], "classes: [{{name: short, max_tokens: {}}}]", id="bound"),
    pytest.param(SLO_KEYS["objective"], SLO, id="objective"),
]


@pytest.mark.parametrize("rules,place", PATTERNS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_pattern_accepts_exactly_the_values_that_the_reader_accepts(
    rules: Mapping[str, Any], place: str, data: st.DataObject
) -> None:
    """Valid values with one or two characters changed."""
    alphabet = st.sampled_from("0123459.%<>= mshdwkx-_")
    valid = ["15s", "1h30m", "0s", "none", "x-team", "other", "long1", "<512", "95%", "v0.25", "0.25.1"]
    text = data.draw(st.sampled_from([*valid, "0.0 %", " >= 7 "]))
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.text(alphabet, max_size=2)) + text[at + data.draw(st.integers(0, 1)) :]
    key = place.partition(":")[0]
    document = yaml.safe_load(MINIMAL) | yaml.safe_load(place.format(json.dumps(text)))
    assert key in document
    assert fits(rules, text) == is_read(document)


def is_read(document: Mapping[str, Any]) -> bool:
    try:
        loads(json.dumps(document))
    except FileError:
        return False
    return True


def test_the_command_writes_the_schema(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    assert main(["alerts", "schema", "--out", "-"]) == 0
    assert capsys.readouterr().out == json_schema.render()
    assert main(["alerts", "schema", "--out", str(tmp_path / "deep")]) == 0
    assert (tmp_path / "deep/slos.schema.json").read_text(encoding="utf-8") == json_schema.render()
    assert capsys.readouterr().out == f"{tmp_path}/deep/slos.schema.json: JSON Schema of SLO files, for editors\n"
