"""The table of fields in `docs/reference/request-log.md`, from `LogEntry`."""

from collections.abc import Iterator
from typing import Any

import msgspec

from exporters.requestlog.entry import LogEntry
from exporters.text.yaml_keys import field_docstrings


def field_table() -> Iterator[str]:
    """The lines of a Markdown table with name, type and meaning of every field."""
    (schema,), definitions = msgspec.json.schema_components([LogEntry], ref_template="{name}")
    types, docstrings = definitions[schema["$ref"]]["properties"], field_docstrings(LogEntry)
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(LogEntry):
        name = field.encode_name
        yield f"| `{name}` | {_type(types[name], definitions)} | {docstrings[field.name]} |"


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    match field:
        case {"anyOf": kinds}:
            return " or ".join(_type(kind, definitions) for kind in kinds)
        case {"allOf": [kind]} | {"additionalProperties": kind}:
            values = _type(kind, definitions)
            return f"object of {values}" if field.get("type") == "object" else values
        case {"$ref": name}:
            return ", ".join(f"`{value}`" for value in definitions[name]["enum"])
        case {"format": form}:
            return f"{field['type']} ({form})"
    return str(field["type"])
