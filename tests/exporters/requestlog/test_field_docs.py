"""The JSON Schema of the request log is generated from `LogEntry`."""

import json

import msgspec

from exporters.requestlog.entry import LogEntry
from exporters.requestlog.field_docs import SCHEMA, json_schema


def test_the_committed_schema_is_generated_from_the_fields() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == json_schema()


def test_every_field_has_a_description() -> None:
    fields = json.loads(json_schema())["$defs"]["LogEntry"]["properties"]
    assert list(fields) == [field.encode_name for field in msgspec.structs.fields(LogEntry)]
    assert [name for name, field in fields.items() if not field.get("description")] == []
