"""Takes an exposition apart, in the text format 0.0.4 or OpenMetrics: the samples wanted, and what was unusable."""

import math
import re
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field

from prometheus_client.parser import text_fd_to_metric_families

from exporters.engines.table_rows import plain

Labels = tuple[tuple[str, str], ...]

LONGEST_LINE = 16 * 1024
"""vLLM's longest is 2 KiB; the parser's time grows with the square of the number of labels."""


_LINES = re.compile(r"[^\n]+").finditer
# Enough to tell a sample that nobody wants from garbage, in a fiftieth of the parser's time.
_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^\ufffd]*\})?[ \t]+(?:[-+0-9.eE]+|NaN|[-+]?Inf)(?:[ \t].*)?"
).fullmatch


@dataclass(slots=True)
class Page:
    """One exposition: samples by plain name and labels, the names of all families, faults by reason."""

    samples: dict[str, dict[Labels, float]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)

    def of(self, name: str) -> dict[Labels, float]:
        return self.samples.get(plain(name), {})

    def has(self, name: str) -> bool:
        return plain(name) in self.names


def take_apart(text: str, wanted: Container[str]) -> Page:
    """Read what can be read, line by line: one bad line costs that line.

    Raises:
        ValueError: no line is a sample.
    """
    page, good, known = Page(), False, set[str]()
    end = text.rfind("\n") + 1
    if (half := text[end:].strip()) and half != "# EOF":  # which needs no newline; a sample cut off may look smaller
        page.faults["line"] += 1
    for found in _LINES(text, 0, end):  # not a list: a page of 50 MB may be nothing but line ends
        line = found[0]
        if line.startswith("#"):
            page.names.update(plain(name) for name in line.split()[2:3])
            continue
        unread = _SAMPLE(line)
        if unread is not None and (unread[1] in known or plain(unread[1]) not in wanted):
            known.add(unread[1])
            good = True
        elif line.strip():
            try:
                name, labels, value = _sample(line)
            except ValueError:
                page.faults["line"] += 1
                continue
            good = True
            page.names.add(name)
            if name in wanted:
                _keep(page, name, labels, value)
    page.names.update(plain(name) for name in known)
    if page.faults["line"] and not good:
        raise ValueError("no line is a sample")
    return page


def _sample(line: str) -> tuple[str, Labels, float]:
    if len(line) > LONGEST_LINE or "\ufffd" in line:
        raise ValueError("too long, or not UTF-8")
    # One line a call: the parser gives up at the first bad line. It reads OpenMetrics' lines too, exemplars and all.
    (family,) = text_fd_to_metric_families((line,))  # type: ignore[arg-type]  # any iterable of lines will do
    (sample,) = family.samples
    return plain(sample.name), tuple(sorted(sample.labels.items())), sample.value


def _keep(page: Page, name: str, labels: Labels, value: float) -> None:
    samples = page.samples.setdefault(name, {})
    if not (math.isfinite(value) and value >= 0):
        page.faults["value"] += 1
    elif labels in samples:
        page.faults["duplicate"] += 1
    else:
        samples[labels] = value
