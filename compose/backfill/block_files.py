"""Makes blocks of Prometheus from OpenMetrics lines, by promtool."""

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from compose.backfill.replay import Scrape
from exporters.text.errors import UsageError, system_reason

SHORTEST = 7200
"""Seconds of the shortest block of Prometheus."""

END = "# EOF\n"


def block_length(longest: float) -> int:
    """Seconds of the longest block that promtool makes within this limit: 2 h, 6 h, 18 h, ..."""
    length = SHORTEST
    while length * 3 <= longest:
        length *= 3
    return length


@dataclass(frozen=True, slots=True)
class BlockMaker:
    """A promtool, and the length of blocks in seconds."""

    promtool: Path
    length: int

    def make(self, text: Path, folder: Path) -> None:
        """Make blocks in `folder` from a file in the OpenMetrics format.

        Raises:
            UsageError: promtool cannot be started, or has failed.
        """
        flags = [f"--max-block-duration={self.length}s", "--quiet", "openmetrics"]
        try:
            done = subprocess.run(
                [self.promtool, "tsdb", "create-blocks-from", *flags, text, folder],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise UsageError(f"{self.promtool}: cannot be started: {system_reason(error)}") from error
        if done.returncode:
            raise UsageError(f"promtool has failed: {(done.stderr or done.stdout).strip()}")

    def write(self, scrapes: Iterable[Scrape], folder: Path, report: Callable[[int, int], None]) -> None:
        """Make one block after the other; `report` receives the time of the last sample and the number of samples."""
        text = folder.with_suffix(".om")
        for _, group in groupby(scrapes, lambda scrape: scrape.at // (self.length * 1000)):
            samples = last = 0
            with text.open("w", encoding="utf-8") as file:
                for scrape in group:
                    file.writelines(scrape.lines)
                    samples, last = samples + len(scrape.lines), scrape.at
                file.write(END)
            self.make(text, folder)
            text.unlink()
            report(last, samples)
