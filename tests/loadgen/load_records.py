"""Records and runs of the load generator for tests."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exporters.vocabulary.slo_file import SloFile
from loadgen.client.completion import CompletionResponse
from loadgen.client.grading import make_record
from loadgen.results.record import REQUESTS, RUN, ClientOutcome, Objective, Record, Run, encode_line, write_json
from loadgen.schedule.phases import Steady
from loadgen.schedule.prompts import Part
from loadgen.schedule.requests import CHAT, PlannedRequest


def planned(**changes: Any) -> PlannedRequest:
    """A planned stream, with these fields changed."""
    usual: dict[str, Any] = {
        "number": 0,
        "due": 0.0,
        "phase": "steady",
        "request_class": "siso",
        "stream": True,
        "endpoint": CHAT,
        "parts": (Part("p", 10),),
        "max_tokens": 10,
    }
    return PlannedRequest(**(usual | changes))


def record(**changes: Any) -> Record:
    """The record of a stream that ended ok, with these fields changed."""
    usual: dict[str, Any] = {
        "request_class": "siso",
        "phase": "steady",
        "number": 0,
        "request_id": "r",
        "endpoint": CHAT,
        "stream": True,
        "outcome": ClientOutcome.OK,
        "due": 1.0,
        "sent": 1.0,
        "closed": 2.0,
        "asked_prompt_tokens": 10,
        "max_tokens": 10,
    }
    return Record(**(usual | changes))


def run(**changes: Any) -> Run:
    """A completed run of two phases of a second each, with these fields changed."""
    usual: dict[str, Any] = {
        "scenario": "mixed",
        "seed": 67,
        "schedule": "0f",
        "shares": {"siso": 1.0},
        "target": "http://127.0.0.1:8000",
        "model": "m",
        "rate_scale": 1,
        "timeout": 180,
        "phases": [Steady("calm", 1, 1), Steady("busy", 1, 1)],
        "classes": ["siso"],
        "slos": [Objective("ttft", "ttft", 5.0, 0.95), Objective("availability", "availability", None, 0.995)],
        "max_send_lag": 0.05,
        "same_machine": True,
        "versions": {},
        "ended": "completed",
        "seconds": 2,
    }
    return Run(**(usual | changes))


def graded(request: PlannedRequest, response: CompletionResponse, slos: SloFile, **changes: Any) -> Record:
    """The record of a request that the load generator took at 1010.25 and sent at 1010.5, of a run begun at 1000."""
    usual: dict[str, Any] = {
        "request_id": "r",
        "start": 1000.0,
        "dispatched": 1010.25,
        "sent": 1010.5,
        "closed": 1020.0,
        "outcome": ClientOutcome.OK,
        "error": None,
    }
    return make_record(request, response, slos, **(usual | changes))


def write_run(folder: Path, of: Run, records: Iterable[Record]) -> str:
    """The folder of a run with these files."""
    write_json(folder / RUN, of)
    (folder / REQUESTS).write_bytes(b"".join(map(encode_line, records)))
    return str(folder)
