"""Generates schema.json and the field table of README.md from `LogEntry`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from exporters.requestlog.log_entry import LogEntry

FOLDER = Path(__file__).parent
README, SCHEMA = FOLDER / "README.md", FOLDER / "schema.json"
_MARK = "<!-- Made by: python -m exporters.requestlog.field_docs -->\n"


def json_schema() -> str:
    """The JSON Schema of a line, with the fields in order."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Made by: python -m exporters.requestlog.field_docs",
    }
    return msgspec.json.format(msgspec.json.encode(head | msgspec.json.schema(LogEntry)), indent=2).decode() + "\n"


def readme(text: str) -> str:
    """The README with a new table of fields, which replaces everything after the marker."""
    return text[: text.index(_MARK)] + _MARK + "\n" + "\n".join(_table()) + "\n"


def _table() -> Iterator[str]:
    (schema,), definitions = msgspec.json.schema_components([LogEntry], ref_template="{name}")
    fields = definitions[schema["$ref"]]["properties"]
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, field in fields.items():
        yield f"| `{name}` | {_type(field, definitions)} | {field['description']} |"


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


if __name__ == "__main__":
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(json_schema(), encoding="utf-8")
