"""A Prometheus with generated samples: blocks contain a month of data."""

import subprocess
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from compose.lab.ports import HOST
from compose.programs.tools import Tools, find_tools
from tests.support.waiting import wait_until

HOUR, DAY, STEP, SCRAPE = 3600, 86400, 300, 15


def samples(series: str, times: Iterable[int], each: float, random: Random, *, counter: bool) -> str:
    """OpenMetrics lines with random values around `each`, or increments around `each` for a counter."""
    value, rows = 0, []
    for when in times:
        sample = int(2 * each * random.random() + random.random() * 0.99)
        value = value + sample if counter else sample
        rows.append(f"{series} {value} {when}\n")
    return "".join(rows)


def tools_in(folder: Path | None) -> Tools:
    """The installed programs, with prometheus and promtool from the folder if given."""
    tools = find_tools()
    return tools if folder is None else replace(tools, prometheus=folder / "prometheus", promtool=folder / "promtool")


@contextmanager
def prometheus_over(lines: Iterable[str], port: int, tools: Tools, rules: str = "groups: []\n") -> Iterator[str]:
    """The URL of a Prometheus with these samples, as OpenMetrics lines without `# EOF`, and these rules."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "in.om").open("w") as text:
            text.writelines(lines)
            text.write("# EOF\n")
        blocks = ["tsdb", "create-blocks-from", "--max-block-duration=744h", "openmetrics", "in.om", "data", "-q"]
        subprocess.run([tools.promtool, *blocks], cwd=folder, check=True)
        (folder / "in.om").unlink()
        (folder / "rules.yaml").write_text(rules)
        (folder / "prometheus.yml").write_text("rule_files: [rules.yaml]\n")
        flags = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={HOST}:{port}"]
        with (folder / "log").open("w") as log:
            running = subprocess.Popen(
                [tools.prometheus, *flags, "--storage.tsdb.retention.time=60d"], cwd=folder, stdout=log, stderr=log
            )
        try:
            url = f"http://{HOST}:{port}"
            assert wait_until(lambda: is_ready(f"{url}/-/ready")), (folder / "log").read_text()
            yield url
        finally:
            running.terminate()
            running.wait()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):
            return True
    except OSError:
        return False
