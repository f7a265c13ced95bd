"""The JSON Schema of the SLO file, by which an editor completes keys and underlines mistakes as they are written.

It knows the shape alone. What one place must know of another (names, windows) is for `vllm-slo alerts check`.
"""

import json

from exporters.slos import SloFile
from exporters.yaml_keys import schema

HEAD = {
    "$schema": "http://json-schema.org/draft-07/schema#",  # draft 7 is the one that editors know best
    "$comment": "Made by `vllm-slo alerts schema`; every key is explained in alerts/README.md.",
    "title": "SLO file of vllm-slo",
}


def render() -> str:
    """The schema as JSON."""
    return json.dumps({**HEAD, **schema(SloFile)}, indent=2) + "\n"
