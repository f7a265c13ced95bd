"""The JSON Schema of the SLO file, by which an editor completes keys and underlines mistakes as they are written.

It knows the shape alone. What one place must know of another (names, windows) is for `vllm-slo alerts check`.
"""

import json
from enum import StrEnum

from exporters.quantities import DURATION_UNITS, spell_duration
from exporters.slos import VERSION, Alerting, Measure, Rejected, ScrapedEngine, Source, Unary

_SIZE = rf"(\d+(\.\d+)?({'|'.join(DURATION_UNITS)}))"
_DEFAULTS = Alerting()

Schema = dict[str, object]


def render() -> str:
    """The schema as JSON."""
    return json.dumps(schema(), indent=2) + "\n"


def schema() -> Schema:
    """Draft 7, which editors know best."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Made by `vllm-slo alerts schema`; every key is explained in alerts/README.md.",
        "title": "SLO file of vllm-slo",
        **_mapping(
            "One file judges requests, makes the rules, draws the dashboards and grades a load test.",
            {
                "version": {"const": 1, "description": "Of this format."},
                "period": _duration("Over which the budget is counted; every window scales with it."),
                "scrape_interval": _duration("Of Prometheus on the sidecar, and of the sidecar on the engine.", "15s"),
                "first_token_timeout": _duration(
                    "No first token by then is bad for tpot, itl_p95, decode and availability; it cuts nothing.", "60s"
                ),
                "trust_request_start": _boolean("Whether the sender's x-request-start is time zero.", default=False),
                "source": _choice(Source, "Whose counts the rules are made of.", Source.SIDECAR),
                "engine": _mapping(
                    "What the rules must know of vLLM with source: engine.",
                    {
                        "version": {
                            **_matches(VERSION.pattern, "Its release, such as 0.25; the newest known if left out."),
                            "type": ["string", "number"],
                        },
                        "job": {
                            "description": "The job under which Prometheus scrapes it.",
                            "type": "string",
                            "default": ScrapedEngine().job,
                        },
                    },
                ),
                "tenants": _mapping(
                    "Who sends requests.",
                    {
                        "header": _matches(
                            r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", "The HTTP header that names the tenant.", "x-tenant"
                        ),
                        "allow": {
                            "description": "Tenants shown by name; all others are `other`.",
                            "type": "array",
                            "items": {"type": ["string", "number"]},
                            "default": [],
                        },
                    },
                ),
                "classes": _list(
                    "A known value of x-request-class wins, else the first whose bounds fit, else `other`.", _class()
                ),
                "slos": _list("What is promised.", _slo()),
                "alerting": _alerting(),
            },
            required=("version", "period", "classes", "slos"),
        ),
    }


def _class() -> Schema:
    bound = r"\s*(<=|>=|<|>)\s*\d+\s*"
    return _mapping(
        "A shape of request; a missing bound accepts any size.",
        {
            "name": _name("A value of the label `class`.", besides="other"),
            "prompt_tokens": _matches(bound, 'A comparison such as "<512"; estimated as characters / 4.'),
            "max_tokens": _matches(bound, 'A comparison such as "<=512"; a missing max_tokens counts as long.'),
        },
        required=("name",),
    )


def _slo() -> Schema:
    return {
        **_mapping(
            "A share of events that must be good.",
            {
                "name": _name("A value of the label `slo`."),
                "classes": _list("Which classes it judges; `other` may be one.", _name("A class.")),
                "signal": _choice(Measure, "What is judged."),
                "threshold": _duration("What is still good."),
                "objective": _matches(
                    r"\s*(?!0+(\.0+)?\s*%)0*\d{1,2}(\.\d+)?\s*%\s*", "The share of events that must be good."
                ),
                "unary": _choice(Unary, "What a streaming SLO does with a request that does not stream.", Unary.SKIP),
                "rejected": _choice(Rejected, "What a 429 or 503 is; exclude makes no event of it.", Rejected.BAD),
            },
            required=("name", "classes", "signal", "objective"),
        ),
        "if": {"properties": {"signal": {"const": Measure.AVAILABILITY}}, "required": ["signal"]},
        "then": {"properties": {"threshold": False}},
        "else": {"required": ["threshold"]},
    }


def _alerting() -> Schema:
    return _mapping(
        "Guards against needless pages.",
        {
            "min_events": _mapping(
                "Events that a tier's long window must hold.",
                {
                    "page": _count("For a page.", _DEFAULTS.min_events_page),
                    "ticket": _count("For a ticket.", _DEFAULTS.min_events_ticket),
                },
            ),
            "min_bad": _count("Bad events that a tier's long window must hold.", _DEFAULTS.min_bad),
            "per_tenant": _boolean("Rules and pages for each of tenants.allow.", default=_DEFAULTS.per_tenant),
            "cold_start": _duration(
                "How long pages are held back while an engine starts; less by default where period / 8640 is less.",
                spell_duration(_DEFAULTS.cold_start),
            ),
        },
    )


def _mapping(description: str, properties: dict[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


def _list(description: str, items: Schema) -> Schema:
    return {"description": description, "type": "array", "items": items, "minItems": 1}


def _matches(pattern: str, description: str, default: str | None = None) -> Schema:
    return {
        "description": description,
        "type": "string",
        "pattern": f"^(?:{pattern})$",
        **({} if default is None else {"default": default}),
    }


def _duration(description: str, default: str | None = None) -> Schema:
    """Above zero: not all digits are 0."""
    return _matches(rf"(?=.*[1-9]){_SIZE}+", f"{description} A duration such as 250ms, 5s, 12h or 30d.", default)


def _name(description: str, besides: str = "") -> Schema:
    return _matches((f"(?!{besides}$)" if besides else "") + r"[a-z][a-z0-9_-]*", description)


def _choice(options: type[StrEnum], description: str, default: StrEnum | None = None) -> Schema:
    return {
        "description": description,
        "enum": [str(option) for option in options],
        **({} if default is None else {"default": str(default)}),
    }


def _boolean(description: str, *, default: bool) -> Schema:
    return {"description": description, "type": "boolean", "default": default}


def _count(description: str, default: int) -> Schema:
    return {"description": description, "type": "integer", "minimum": 1, "default": default}
