"""Formats a value with its unit as Grafana does; the ids of the units are Grafana's."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

_SI = ("", "k", "M", "G", "T", "P")
_IEC = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_COUNTS = ("", "K", "M", "B", "T")


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A number with a prefix and a suffix, such as `1.5 KiB` or `1.5K req/s`."""

    suffix: str
    base: int = 1000
    prefixes: tuple[str, ...] = _SI
    gap: str = " "


def _count(suffix: str) -> _Scaled:
    return _Scaled(f" {suffix}", prefixes=_COUNTS, gap="")


_SCALED = {
    "short": _Scaled("", prefixes=("", " K", " Mil", " Bil", " Tri", " Quadr"), gap=""),
    "sishort": _Scaled("", gap=""),
    "bytes": _Scaled("B", 1024, _IEC),
    "kbytes": _Scaled("B", 1024, _IEC[1:]),
    "mbytes": _Scaled("B", 1024, _IEC[2:]),
    "gbytes": _Scaled("B", 1024, _IEC[3:]),
    "decbytes": _Scaled("B"),
    "Bps": _Scaled("B/s"),
    "binBps": _Scaled("B/s", 1024, _IEC),
    "bps": _Scaled("b/s"),
    "hertz": _Scaled("Hz"),
    "flops": _Scaled("FLOPS"),
    "watt": _Scaled("W"),
    "joule": _Scaled("J"),
    "reqps": _count("req/s"),
    "ops": _count("ops/s"),
    "cps": _count("c/s"),
    "rps": _count("rd/s"),
    "wps": _count("wr/s"),
    "iops": _count("io/s"),
    "reqpm": _count("req/min"),
    "opm": _count("ops/min"),
    "cpm": _count("c/min"),
}
_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# The length of each unit in seconds, which is also the lowest value shown in it.
_TIMES = (
    (31536000.0, " years"),
    (604800.0, " weeks"),
    (86400.0, " days"),
    (3600.0, " hours"),
    (60.0, " mins"),
    (1.0, " s"),
    (1e-3, " ms"),
    (1e-6, " µs"),
)
_BOOLEANS = {"bool": ("True", "False"), "bool_yes_no": ("Yes", "No"), "bool_on_off": ("On", "Off")}
_MONEY = {"currencyUSD": "$", "currencyEUR": "€", "currencyGBP": "£"}


def is_binary(unit: str) -> bool:
    """Whether the prefixes of a unit are powers of 1024."""
    return unit in _SCALED and _SCALED[unit].base == 1024


def format_value(
    value: float, unit: str = "none", decimals: int | None = None, *, now: float = 0.0, zone: tzinfo = UTC
) -> str:
    """A value as text; `now` (unix seconds) and `zone` are for units that are times."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if unit in _SCALED:
        return _scaled(value, _SCALED[unit], decimals)
    if unit in _SECONDS:
        return _duration(value * _SECONDS[unit], decimals)
    if unit in _MONEY:
        return _MONEY[unit] + _scaled(value, _count(""), decimals).rstrip()
    if unit in _BOOLEANS:
        return _BOOLEANS[unit][not value]
    kind, _, suffix = unit.partition(":")
    match kind:
        case "" | "none" | "string":
            return _rounded(value, decimals)
        case "percent":
            return f"{_rounded(value, decimals)}%"
        case "percentunit":
            return f"{_rounded(100 * value, decimals)}%"
        case "dateTimeFromNow":
            age = now - value / 1000
            return f"{_duration(age, 0)} ago" if age >= 0 else f"in {_duration(-age, 0)}"
        case "suffix":
            return f"{_rounded(value, decimals)}{suffix}"
        case "prefix":
            return f"{suffix}{_rounded(value, decimals)}"
        case "currency":
            return suffix + _scaled(value, _count(""), decimals).rstrip()
        case "count":
            return _scaled(value, _count(suffix), decimals)
        case "si":
            return _scaled(value, _Scaled(suffix), decimals)
    if kind == "time" or kind.startswith("dateTime"):
        return format_time(value / 1000, zone)
    # a custom unit, such as tokens/s
    return f"{_rounded(value, decimals)} {unit}"


def format_time(seconds: float, zone: tzinfo) -> str:
    """Unix seconds as a date and a time of day."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S")


def _scaled(value: float, scale: _Scaled, decimals: int | None) -> str:
    power = 0
    while abs(value) >= scale.base and power + 1 < len(scale.prefixes):
        value, power = value / scale.base, power + 1
    return f"{_rounded(value, decimals)}{scale.gap}{scale.prefixes[power]}{scale.suffix}"


def _duration(seconds: float, decimals: int | None) -> str:
    if seconds == 0:
        return f"{_rounded(0, decimals)} s"
    size, suffix = next((pair for pair in _TIMES if abs(seconds) >= pair[0]), (1e-9, " ns"))
    return f"{_rounded(seconds / size, decimals)}{suffix}"


def _rounded(value: float, decimals: int | None) -> str:
    """With the configured decimals; otherwise integers without decimals, other values with three significant digits."""
    if decimals is None:
        decimals = 0 if value % 1 == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"
