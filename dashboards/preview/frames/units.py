"""Formats a value with its unit as Grafana does; the ids of the units are Grafana's."""

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


def _count(suffix: str) -> _Scaled:
    return _Scaled(f" {suffix}", prefixes=_COUNTS, gap="")


_SCALED = {
    "short": _Scaled("", prefixes=("", " K", " Mil", " Bil", " Tri", " Quadr", " Quint", " Sext", " Sept"), gap=""),
    "sishort": _si(""),
    "bytes": _Scaled("B", 1024, _IEC),
    "kbytes": _Scaled("B", 1024, _IEC, first=1),
    "mbytes": _Scaled("B", 1024, _IEC, first=2),
    "gbytes": _Scaled("B", 1024, _IEC, first=3),
    "decbytes": _si("B"),
    "Bps": _si("B/s"),
    "binBps": _Scaled("B/s", 1024, _IEC),
    "bps": _si("b/s"),
    "hertz": _si("Hz"),
    "flops": _si("FLOPS"),
    "watt": _si("W"),
    "joule": _si("J"),
    "reqps": _count("req/s"),
    "ops": _count("ops/s"),
    "cps": _count("c/s"),
    "rps": _count("rd/s"),
    "wps": _count("wr/s"),
    "iops": _count("io/s"),
    "reqpm": _count("req/m"),
    "opm": _count("ops/m"),
    "cpm": _count("c/m"),
}
_TIMES: dict[str, tuple[tuple[float, float, str], ...]] = {
    "ns": ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (6e10, 1e9, "s"), (36e11, 6e10, "min*"),
           (864e11, 36e11, "hour*"), (math.inf, 864e11, "day*")),
    "µs": ((1e3, 1, "µs"), (1e6, 1e3, "ms"), (math.inf, 1e6, "s")),
    "ms": ((1e3, 1, "ms"), (6e4, 1e3, "s"), (36e5, 6e4, "min*"), (864e5, 36e5, "hour*"), (31536e6, 864e5, "day*"),
           (math.inf, 31536e6, "year*")),
    "s": ((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (60, 1, "s"), (3600, 60, "min*"),
          (86400, 3600, "hour*"), (604800, 86400, "day*"), (31536e3, 604800, "week*"), (math.inf, 31556900, "year*")),
    "m": ((60, 1, "min"), (1440, 60, "hour*"), (10080, 1440, "day*"), (604800, 10080, "week*"),
          (math.inf, 525948, "year*")),
    "h": ((24, 1, "hour"), (168, 24, "day*"), (8760, 168, "week*"), (math.inf, 8760, "year*")),
    "d": ((7, 1, "day*"), (365, 7, "week*"), (math.inf, 365, "year*")),
}  # fmt: skip
"""Limit, divisor and name of the values of a unit; `*` adds the plural above 1."""
_BOOLEANS = {"bool": ("True", "False"), "bool_yes_no": ("Yes", "No"), "bool_on_off": ("On", "Off")}
_MONEY = {"currencyUSD": "$", "currencyEUR": "€", "currencyGBP": "£"}


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
    if unit in _BOOLEANS:
        return _BOOLEANS[unit][not value]
    kind, _, suffix = unit.partition(":")
    if unit in _MONEY or kind == "currency":
        return _money(value, _MONEY.get(unit, suffix), decimals)
    match kind:
        case "locale":
            return _with_separators(value, 3 if decimals is None else decimals)
        case "" | "none" | "string":
            return _fixed(value, decimals)
        case "percent":
            return f"{_fixed(value, decimals)}%"
        case "percentunit":
            return f"{_fixed(100 * value, decimals)}%"
        case "suffix":
            return f"{_fixed(value, decimals)} {suffix}"
        case "prefix":
            return f"{suffix}{_fixed(value, decimals)}"
        case "count":
            return _scaled(value, _count(suffix), decimals)
        case "si":
            return _scaled(value, _si(suffix), decimals)
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
    amount = _fixed(abs(value)) if math.isinf(value) else _scaled(abs(value), _count(""), decimals).rstrip()
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
