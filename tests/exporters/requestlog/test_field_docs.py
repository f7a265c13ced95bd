"""The README and the JSON Schema of the request log are generated from `LogEntry`."""

import json

import msgspec

from exporters.requestlog.field_docs import README, SCHEMA, json_schema, readme
from exporters.requestlog.log_entry import LogEntry


def test_the_committed_readme_and_schema_are_up_to_date() -> None:
    text = README.read_text(encoding="utf-8")
    assert readme(text) == text
    assert SCHEMA.read_text(encoding="utf-8") == json_schema()


def test_every_field_has_a_description() -> None:
    fields = json.loads(json_schema())["$defs"]["LogEntry"]["properties"]
    assert list(fields) == [field.encode_name for field in msgspec.structs.fields(LogEntry)]
    assert [name for name, field in fields.items() if not field.get("description")] == []
