"""Durations, times, sizes and numbers as text: parsing and formatting for flags, the SLO file and PromQL."""

import re
from datetime import datetime

from exporters.text.errors import InvalidValueError

DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
DURATION_PATTERN = r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)"
_DURATION = re.compile(DURATION_PATTERN)
_SIZE_UNITS = ("", "KiB", "MiB", "GiB")
SIZE_PATTERN = rf"([1-9][0-9]*)({'|'.join(_SIZE_UNITS)})"
_SIZE = re.compile(SIZE_PATTERN)


def number(value: float) -> str:
    """A number without a trailing `.0` or an exponent: `5`, `1000000`."""
    return f"{value:.12g}"


def parse_duration(text: str, examples: str = "250ms, 30s or 10m", *, allow_zero: bool = False) -> float:
    """Parse `250ms`, `5s`, `1m`, `12h`, `30d` or `1h30m`; returns seconds.

    Raises:
        InvalidValueError: the text is not a duration, or zero without `allow_zero`; the message has the `examples`.
    """
    parts = list(_DURATION.finditer(text))
    seconds = sum(round(float(part[1]) * DURATION_UNITS[part[2]], 9) for part in parts)
    if not parts or "".join(part[0] for part in parts) != text or not (seconds or allow_zero):
        raise InvalidValueError(f"{text!r} is not a valid duration; write a number with a unit, such as {examples}")
    return seconds


def parse_count(text: str, what: str) -> int:
    """Parse a number of `what`, such as events; raises InvalidValueError if it is not a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise InvalidValueError(f"{text!r} is not a number of {what}; write a whole number of at least 1")
    return int(text)


def from_milliseconds(milliseconds: float | None) -> float | None:
    """Seconds; None if unknown."""
    return None if milliseconds is None else milliseconds / 1000


def parse_time(text: str) -> float:
    """Parse unix seconds or RFC 3339, in local time without an offset; returns unix seconds.

    Raises:
        InvalidValueError: the text is not a time.
    """
    try:
        return float(text) if "-" not in text else datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidValueError(
            f"{text!r} is not a valid time; write unix seconds or RFC 3339, such as 2026-01-31T12:00:00Z"
        ) from error


def parse_moment(text: str, now: float) -> float:
    """Parse a duration before `now`, or a time as `parse_time` does; returns unix seconds."""
    return now - parse_duration(text) if text.endswith(tuple(DURATION_UNITS)) else parse_time(text)


def spell_duration(seconds: float) -> str:
    """The shortest Prometheus duration of `seconds` (whole milliseconds): `1h30m`, `250ms`."""
    left, out = round(seconds * 1000), ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        out += f"{count}{unit}" if count else ""
    return out or "0s"


def shortest_duration(seconds: float) -> str:
    """The duration in its largest unit without a remainder: `75s`, `10m`, `250ms`."""
    milliseconds = round(seconds * 1000)
    sizes = {unit: round(1000 * size) for unit, size in DURATION_UNITS.items()}
    unit = max((unit for unit in sizes if milliseconds % sizes[unit] == 0), key=sizes.__getitem__)
    return f"{milliseconds // sizes[unit]}{unit}"


def shortest_size(size: int) -> str:
    """The size in its largest unit without a remainder: `64KiB`, `1000`."""
    power = max(power for power in range(len(_SIZE_UNITS)) if size % (1 << 10 * power) == 0)
    return f"{size >> 10 * power}{_SIZE_UNITS[power]}"


def parse_size(text: str) -> int:
    """Parse `4096`, `64KiB`, `256MiB` or `1GiB`; returns bytes. Raises InvalidValueError if the text is not a size."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidValueError(
            f"{text!r} is not a valid size; write bytes or a number with a unit, such as 64KiB or 256MiB"
        )
    return int(match[1]) << 10 * _SIZE_UNITS.index(match[2])
