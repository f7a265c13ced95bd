"""`make bench NAME=request_queries`: the speed of `vllm-slo requests` beside jq, on the same generated log.

Both print the matching lines. CPU time is compared, because other processes change the elapsed time.
"""

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from exporters.requestlog.writer import encode_line
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.sample_records import finished

DISTINCT = 20_000
"""Requests, one per second; they are repeated up to the size of the log."""

START = 1_800_000_000
LAST_TENTH = START + DISTINCT * 9 // 10


@dataclass(frozen=True, slots=True)
class Query:
    flags: str
    jq: str


QUERIES = (
    Query("--class siso --slo ttft=bad", 'select(.class == "siso" and .slo.ttft == "bad")'),
    Query("--request-id load-000000000000000000000777", 'select(.request_id == "load-000000000000000000000777")'),
    Query("--status 5xx", "select(.status >= 500)"),
    Query("--min queue_ms=2000", "select(.queue_ms >= 2000)"),
    Query(f"--since {LAST_TENTH}", f'select(.time >= "{datetime.fromtimestamp(LAST_TENTH, UTC).isoformat()}")'),
    Query("--model Qwen/Qwen2.5-14B-Instruct", 'select(.model == "Qwen/Qwen2.5-14B-Instruct")'),
)


def lines() -> Iterator[bytes]:
    rng = random.Random(1)  # noqa: S311 - reproducible
    for number in range(DISTINCT):
        queue = rng.expovariate(1.5)
        failed = rng.random() < 0.01
        verdict = Verdict.BAD if failed or queue > 1 else Verdict.GOOD
        record = finished(
            time=START + number + rng.random(),
            request_id=f"load-{number:024d}",
            trace_id=f"{rng.getrandbits(128):032x}",
            model="Qwen/Qwen2.5-14B-Instruct",
            request_class=rng.choice(["siso", "liso", "silo", "lilo"]),
            status=503 if failed else 200,
            outcome=Outcome.REJECTED if failed else Outcome.OK,
            finish_reason=None if failed else "length",
            prompt_tokens=rng.randint(20, 4000),
            completion_tokens=rng.randint(1, 900),
            prompt_sha256=f"{rng.getrandbits(256):064x}",
            ttft=queue + 0.1,
            tpot=rng.gauss(0.04, 0.002),
            itl_p50=0.04,
            itl_p95=0.05,
            e2e=queue + rng.expovariate(0.2),
            queue=queue,
            prefill=0.09,
            decode=rng.expovariate(0.2),
            slo={"ttft": verdict, "availability": Verdict.BAD if failed else Verdict.GOOD},
        )
        yield encode_line(record, f"relay-0-18ea5569b25533ad:{number}", "2ec2aa275844")


def measured(command: Sequence[str | Path], out: Path) -> tuple[float, int]:
    """CPU seconds and printed lines."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with out.open("wb") as file:
        subprocess.run(command, stdout=file, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with out.open("rb") as file:
        printed = sum(1 for _ in file)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, printed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000, help="megabytes of the log (default: %(default)s)")
    parser.add_argument("--folder", help="folder for the log (default: that of temporary files)")
    arguments = parser.parse_args()
    jq, program = shutil.which("jq"), Path(sys.executable).with_name("vllm-slo")
    if jq is None:
        print("jq is not installed; on Debian: apt-get install jq", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        log, out = Path(name) / "requests.jsonl", Path(name) / "out"
        block = b"".join(lines())
        with log.open("wb") as file:
            while file.tell() < arguments.size * 1_000_000:
                file.write(block)
        size = log.stat().st_size / 1e6
        print(f"{size:.0f} MB, {log.stat().st_size // len(block) * DISTINCT:,} requests; MB per second of CPU time")
        print(f"{'':52}{'matches':>10}{'vllm-slo':>10}{'jq':>6}{'ratio':>7}")
        ratios = []
        for query in QUERIES:
            ours, found = measured(
                [program, "requests", "--request-log", log, "--format", "json", *query.flags.split()], out
            )
            theirs, also_found = measured([jq, "-c", query.jq, log], out)
            assert found == also_found, f"{query.flags}: {found} and {also_found} matches"
            ratios.append(theirs / ours)
            print(f"{query.flags:52}{found:10,}{size / ours:10.0f}{size / theirs:6.0f}{theirs / ours:7.1f}", flush=True)
        print(f"lowest ratio: {min(ratios):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
