"""Starts a Prometheus that scrapes some ports."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.ports import free_port


@contextlib.asynccontextmanager
async def prometheus(
    program: Path,
    folder: Path,
    *ports: int,
    job: str = "j",
    rules: Path | None = None,
    target_labels: Mapping[str, str] | None = None,
    relabel_configs: Sequence[Mapping[str, Any]] = (),
) -> AsyncIterator[str]:
    """The URL of a Prometheus that stores exemplars and evaluates the rules in a file."""
    targets = [f"127.0.0.1:{port}" for port in ports]
    # The interval is also the limit of the timeout, which the exporter on a busy machine must not reach.
    every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    static = {"targets": targets, "labels": dict(target_labels or {})}
    scraped = {"job_name": job, **every, "static_configs": [static], "relabel_configs": list(relabel_configs)}
    config, address = folder / "prometheus.yml", f"127.0.0.1:{free_port()}"
    rule_files = [] if rules is None else [str(rules)]
    config.write_text(json.dumps({"scrape_configs": [scraped], "rule_files": rule_files}))
    process = await asyncio.create_subprocess_exec(
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--enable-feature=exemplar-storage",
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        await process.wait()
