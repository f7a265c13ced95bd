"""Finds the requests in a log that fulfil all conditions, without decoding lines that cannot."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from exporters.analysis.requests.conditions import Condition, Row
from exporters.analysis.requests.log_fields import decoder
from exporters.requestlog.files import IncompleteError, blocks
from exporters.requestlog.reader import BadLineError, BadLines, parse_line
from exporters.vocabulary.log_names import renamed

_NO_ENTRY = (BadLineError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LINE_END = b'}\n{"time":"'
"""The end of a line and the start of the next, as the sidecar writes them: `time` is the first field."""


class Scan:
    """Iterates over the requests that fulfil all conditions, as decoded rows with their lines.

    A line without whitespace and escapes has only one spelling of a text, so a line that lacks a text of a condition
    is skipped by comparing bytes. Lines are bad as for `LogReader`, with two exceptions: only the required fields and
    those of the conditions and of `fields` must have values of their types, and a skipped line must only begin and end
    as an object.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        conditions: Iterable[Condition] = (),
        fields: Iterable[str] = (),
        *,
        strict: bool = False,
    ) -> None:
        """No line is skipped with `strict`, and all fields must have values of their types."""
        conditions = tuple(conditions)
        self._paths = paths
        self._decode = decoder([*(name for each in conditions for name in each.fields), *fields]).decode
        self._tests = tuple(each.test for each in conditions)
        self._texts = () if strict else tuple(each.texts for each in conditions if each.texts)
        self._strict = strict
        self.lines = 0
        """Lines that have been read."""
        self.last_line = b""
        self.bad_lines: dict[str, BadLines] = {}
        """Skipped lines by file."""

    def __iter__(self) -> Iterator[tuple[Row, bytes]]:
        """Read the files from the start.

        Raises:
            UsageError: a file cannot be read.
        """
        self.lines, self.bad_lines = 0, {}
        for name, file in blocks(self._paths):
            bad = self.bad_lines[name] = BadLines()
            rarest: bytes | None = None
            before = 0  # lines of the file before the block
            try:
                for block in file:
                    count = block.count(b"\n") + (block[-1:] not in b"\n")
                    if not before:
                        rarest = self._rarest_text(block, count)
                    for start, raw in self._candidates(block, rarest, count):
                        line = renamed(raw)
                        try:
                            if self._strict:
                                parse_line(line)
                            row = self._decode(line)
                            for test in self._tests:
                                if not test(row):
                                    break
                            else:
                                if not line.isascii():
                                    line.decode()  # a field that is not decoded may not be UTF-8
                                yield row, line
                        except _NO_ENTRY as error:
                            bad.add(before + block.count(b"\n", 0, start) + 1, error)
                    before += count
                    self.lines += count
                    self.last_line = block[block.rfind(b"\n", 0, -1) + 1 :] or self.last_line
            except IncompleteError as error:
                self.lines += 1  # the rest of the file
                bad.add(before + 1, error)

    def _rarest_text(self, block: bytes, count: int) -> bytes | None:
        """The text that lets most lines be skipped, of those that every matching line has; None if it skips few."""
        rarest = min((texts[0] for texts in self._texts if len(texts) == 1), key=block.count, default=None)
        return None if rarest is None or block.count(rarest) * 2 > count else rarest

    def _candidates(self, block: bytes, text: bytes | None, count: int) -> Iterator[tuple[int, bytes]]:
        """The lines that must be decoded, with their positions in the block; `text` is in each that matches."""
        if text is not None and _is_plain(block) and _are_objects(block, count):
            others = len(self._texts) > 1
            at = block.find(text)
            while at >= 0:
                start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
                line = block[start : end if end >= 0 else len(block)]
                if not others or self._may_match(line):
                    yield start, line
                at = block.find(text, start + len(line))
            return
        start = 0
        for line in block.removesuffix(b"\n").split(b"\n") if block else ():
            if not self._texts or self._may_match(line) or not _is_plain(line) or not _are_objects(line, 1):
                yield start, line
            start += len(line) + 1

    def _may_match(self, line: bytes) -> bool:
        for texts in self._texts:
            for text in texts:
                if text in line:
                    break
            else:
                return False
        return True


def _is_plain(text: bytes) -> bool:
    return b"\\" not in text and b" " not in text and b"\t" not in text and b"\r" not in text


def _are_objects(lines: bytes, count: int) -> bool:
    """Whether each line begins and ends as an object; False also for lines that the sidecar would write differently."""
    return (
        lines.startswith(b"{")
        and lines.endswith((b"}", b"}\n"))
        and (count == 1 or lines.count(_LINE_END) == count - 1)
    )
