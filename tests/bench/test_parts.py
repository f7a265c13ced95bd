"""Which part of the sidecar a sample of its functions belongs to."""

import pytest

from tests.bench.parts import OTHER, part_of

LOOP = "<module> (exporters/relay/process.py);run_child (exporters/processes/child.py);Runner.run (asyncio/runners.py)"
PARSE = f"{LOOP};ClientConnection.data_received (exporters/relay/connections/client.py)"


@pytest.mark.parametrize(
    "stack, part",
    [
        (LOOP, None),
        (f"{LOOP};FastPath.data_received (exporters/relay/metering/fast_path.py)", None),
        (f"{PARSE};ClientConnection._flush (exporters/relay/connections/client.py)", None),
        (f"{PARSE};parse_request (exporters/http/parser.py)", "HTTP"),
        (f"{PARSE};parse (exporters/relay/bodies/request_body.py);loads (json/__init__.py)", "bodies and events"),
        (f"{PARSE};Judge.ended (exporters/vocabulary/verdicts.py)", "metering and verdicts"),
        (f"{LOOP};Relay._tick (exporters/relay/relay.py)", OTHER),
    ],
)
def test_a_sample_belongs_to_the_part_of_its_innermost_function_of_the_relay(stack: str, part: str | None) -> None:
    assert part_of(stack) == part
