"""Formats a value with its unit as Grafana does; the units are those of the shipped dashboards."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import ROUND_HALF_UP, Decimal

_SI = ("f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y")
_IEC = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_COUNTS = ("", "K", "M", "B", "T")


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A number with a prefix and a suffix, such as `1.5 KiB` or `1.5K req/s`; `first` is the prefix of the number 1."""

    suffix: str
    base: int = 1000
    prefixes: tuple[str, ...] = _SI
    gap: str = " "
    first: int = 0


def _si(suffix: str) -> _Scaled:
    return _Scaled(suffix, first=_SI.index(""))


_SCALED = {
    "short": _Scaled("", prefixes=("", " K", " Mil", " Bil", " Tri", " Quadr", " Quint", " Sext", " Sept"), gap=""),
    "bytes": _Scaled("B", 1024, _IEC),
    "Bps": _si("B/s"),
    "watt": _si("W"),
    "hertz": _si("Hz"),
    "reqps": _Scaled(" req/s", prefixes=_COUNTS, gap=""),
}
_MONEY = _Scaled(" ", prefixes=_COUNTS, gap="")
_TIMES: dict[str, tuple[tuple[float, float, str], ...]] = {
    "ms": ((1e3, 1, "ms"), (6e4, 1e3, "s"), (36e5, 6e4, "min*"), (864e5, 36e5, "hour*"), (31536e6, 864e5, "day*"),
           (math.inf, 31536e6, "year*")),
    "s": ((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (60, 1, "s"), (3600, 60, "min*"),
          (86400, 3600, "hour*"), (604800, 86400, "day*"), (31536e3, 604800, "week*"), (math.inf, 31556900, "year*")),
}  # fmt: skip
"""Limit, divisor and name of the values of a unit; `*` adds the plural above 1."""


def is_binary(unit: str) -> bool:
    """Whether the prefixes of a unit are powers of 1024."""
    return unit in _SCALED and _SCALED[unit].base == 1024


def format_value(
    value: float, unit: str = "none", decimals: int | None = None, *, now: float = 0.0, zone: tzinfo = UTC
) -> str:
    """A value as text; `now` (unix seconds) and `zone` are for units that are times."""
    if unit in _SCALED:
        return _scaled(value, _SCALED[unit], decimals)
    if unit in _TIMES:
        return _duration(value, unit, decimals)
    kind, _, suffix = unit.partition(":")
    match kind:
        case "currency":
            return _money(value, suffix, decimals)
        case "locale":
            return _with_separators(value, 3 if decimals is None else decimals)
        case "" | "none" | "string":
            return _fixed(value, decimals)
        case "percent":
            return f"{_fixed(value, decimals)}%"
        case "percentunit":
            return f"{_fixed(100 * value, decimals)}%"
        case "celsius":
            return f"{_fixed(value, decimals)} °C"
        case "suffix":
            return f"{_fixed(value, decimals)} {suffix}"
    is_time = kind == "time" or kind.startswith("dateTime")
    if is_time and math.isinf(value):
        return _fixed(value)
    if kind == "dateTimeFromNow":
        age = now - value / 1000
        return f"{_duration(age, 's', 0)} ago" if age >= 0 else f"in {_duration(-age, 's', 0)}"
    if is_time:
        return format_time(value / 1000, zone)
    # a custom unit, such as tokens/s
    return f"{_fixed(value, decimals)} {unit}"


def format_time(seconds: float, zone: tzinfo) -> str:
    """Unix seconds as a date and a time of day."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S")


def _scaled(value: float, scale: _Scaled, decimals: int | None) -> str:
    if math.isinf(value):
        # simpleCountUnit of Grafana appends its symbol to a suffix that is not there
        return _fixed(value, decimals) + (f"undefined{scale.suffix}" if scale.prefixes is _COUNTS else "")
    power = math.floor(math.log10(abs(value)) / math.log10(scale.base)) if value else 0
    power = min(max(power, -scale.first), len(scale.prefixes) - scale.first - 1)
    return (
        f"{_fixed(value / scale.base**power, decimals)}{scale.gap}{scale.prefixes[scale.first + power]}{scale.suffix}"
    )


def _with_separators(value: float, most: int) -> str:
    """JavaScript's `toLocaleString` in English, with at most so many decimals."""
    if math.isinf(value):
        return _fixed(value)
    rounded = Decimal(repr(value)).quantize(Decimal(1).scaleb(-most), ROUND_HALF_UP)
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _money(value: float, symbol: str, decimals: int | None) -> str:
    amount = _fixed(abs(value)) if math.isinf(value) else _scaled(abs(value), _MONEY, decimals).rstrip()
    return f"{'-' if value < 0 else ''}{symbol}{amount}"


def _duration(value: float, unit: str, decimals: int | None) -> str:
    if value == 0 and unit == "s":
        return "0 s"
    _, size, name = next((each for each in _TIMES[unit] if abs(value) < each[0]), _TIMES[unit][-1])
    plural = "s" if abs(value / size) > 1 else ""
    return f"{_fixed(value / size, decimals)} {name.replace('*', plural)}"


def _fixed(value: float, decimals: int | None = None) -> str:
    """The value with the configured decimals; else integers without decimals, others with three significant digits."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if decimals is None:
        decimals = 0 if value % 1 == 0 else max(0, 2 - math.floor(math.log(abs(value)) / math.log(10)))
    # rounds halves up, as JavaScript does
    rounded = math.floor(value * 10**decimals + 0.5) / 10**decimals
    if 0 < abs(rounded) < 1e-6:
        return repr(rounded).replace("e-0", "e-")
    return f"{rounded + 0.0:.{decimals}f}"
