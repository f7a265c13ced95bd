"""What the journal costs a request, beside one `write` of an access log line: `make bench NAME=journal`."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from exporters.records.journal import RelayJournal
from exporters.sidecar.ingest.ledger import RequestLedger
from exporters.vocabulary.signals import Endpoint
from tests.support.sample_records import finished

ROUNDS, REQUESTS, BATCH = 9, 20_000, 20
LIMIT = 4.0
"""Microseconds of a relay's time per request."""


def microseconds(run: Callable[[], None]) -> float:
    began = time.thread_time()
    run()
    return (time.thread_time() - began) / REQUESTS * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.folder) as name:
        folder = Path(name)
        relay, ledger, record = RelayJournal(folder, "relay-0-a"), RequestLedger(folder), finished()
        log = os.open(folder / ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        line, numbers = b"x" * 199 + b"\n", iter(range(1, ROUNDS * REQUESTS + 1))

        def begin() -> None:
            for _ in range(REQUESTS):
                relay.begun(Endpoint.CHAT_COMPLETIONS)
                relay.write_begun()

        def record_batches() -> None:
            for _ in range(REQUESTS // BATCH):
                batch = [next(numbers) for _ in range(BATCH)]
                ledger.expect_lines("relay-0-a", batch[0], [record] * BATCH)
                for number in batch:
                    ledger.settle("relay-0-a", [(number, record, None)])
                ledger.save()

        def write_lines() -> None:
            for _ in range(REQUESTS):
                os.write(log, line)

        parts = {"relay: begin": begin, "exporter: record": record_batches, "peer: write a line": write_lines}
        times = {part: sorted(microseconds(run) for _ in range(ROUNDS)) for part, run in parts.items()}
        ledger.release()
        relay.close()
        os.close(log)
    peer = times["peer: write a line"][ROUNDS // 2]
    print(f"{'us a request':20} {'median':>7} {'range':>13} {'x peer':>7}")
    for part, each in times.items():
        median = each[ROUNDS // 2]
        print(f"{part:20} {median:7.2f} {each[0]:6.2f}-{each[-1]:5.2f}  {median / peer:7.2f}")
    return 0 if times["relay: begin"][ROUNDS // 2] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
