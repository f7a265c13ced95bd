"""Records of the load generator for tests."""

from typing import Any

from loadgen.request_plan import CHAT
from loadgen.request_record import ClientOutcome, Record


def record(**changes: Any) -> Record:
    """The record of a stream that ended ok, with these fields changed."""
    usual: dict[str, Any] = {
        "request_class": "siso",
        "phase": "steady",
        "request_id": "r",
        "endpoint": CHAT,
        "stream": True,
        "outcome": ClientOutcome.OK,
        "due": 1.0,
        "closed": 2.0,
        "asked_prompt_tokens": 10,
        "max_tokens": 10,
    }
    return Record(**(usual | changes))
