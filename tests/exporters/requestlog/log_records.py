"""Numbered records, and what a file of the request log has of them."""

import json
from pathlib import Path

from exporters.records.messages import Finished
from tests.support.sample_records import finished


def numbered(*numbers: int, **fields: object) -> list[tuple[int, Finished]]:
    return [(number, finished(request_id=f"r-{number}", **fields)) for number in numbers]


def ids(path: Path) -> list[str]:
    return [json.loads(line)["request_id"] for line in path.read_text().splitlines()]
