"""A Prometheus with any configuration, on a free port."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from compose.lab.ports import HOST
from compose.programs.tools import Tools
from tests.support.ports import free_port
from tests.support.prometheus_blocks import is_ready
from tests.support.waiting import wait_until


@contextmanager
def prometheus_server(tools: Tools, folder: Path, config: Mapping[str, Any], *flags: str) -> Iterator[tuple[int, str]]:
    """The process id and the URL; the samples are in `data` in the folder."""
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"{HOST}:{free_port()}"
    paths = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}")
    with (
        (folder / "log").open("w") as log,
        Popen([tools.prometheus, *paths, *flags], cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            assert wait_until(lambda: is_ready(f"http://{address}/-/ready")), (folder / "log").read_text()
            yield process.pid, f"http://{address}"
        finally:
            process.terminate()
