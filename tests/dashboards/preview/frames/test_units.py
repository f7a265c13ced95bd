import math
from datetime import timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dashboards.preview.frames.units import format_value

HOUR = 3600


@pytest.mark.parametrize(
    "value, unit, text",
    [
        pytest.param(0.00123456, "none", "0.00123", id="... and after zeros"),
        pytest.param(1234, "short", "1.23 K", id="thousands"),
        pytest.param(-2_500_000, "short", "-2.50 Mil", id="millions below zero"),
        pytest.param(0.25, "percentunit", "25%", id="a share"),
        pytest.param(2e-6, "s", "2 µs", id="microseconds"),
        pytest.param(90, "s", "1.50 mins", id="minutes"),
        pytest.param(1712345.6, "locale", "1,712,345.6", id="separators"),
        pytest.param(1024, "bytes", "1 KiB", id="binary bytes"),
        pytest.param(0.5, "Bps", "500 mB/s", id="less than a byte"),
        pytest.param(12.345, "tokens/s", "12.3 tokens/s", id="a unit of one's own"),
        pytest.param(3, "suffix: per user", "3  per user", id="a suffix of one's own"),
        pytest.param(1500, "currency:kr", "kr1.50K", id="other money"),
        pytest.param(0, "s", "0 s", id="no time"),
        pytest.param(12.5, "percent", "12.5%", id="percent"),
        pytest.param(math.inf, "s", "∞ years", id="never"),
        pytest.param(-math.inf, "bytes", "-∞", id="below everything"),
    ],
)
def test_a_value_is_formatted_as_in_grafana(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_configured_decimals_are_kept() -> None:
    assert [format_value(1, "percentunit", 1), format_value(0.5, "s", 0), format_value(2, "short", 2)] == [
        "100.0%",
        "500 ms",
        "2.00",
    ]


def test_a_time_is_formatted_in_its_zone() -> None:
    zone = timezone(timedelta(hours=2))
    assert format_value(1769860800000, "dateTimeAsIso", zone=zone) == "2026-01-31 14:00:00"
    assert format_value(1769860800000, "time:YYYY", zone=zone) == "2026-01-31 14:00:00"


@pytest.mark.parametrize(
    "at, text",
    [
        pytest.param(1000 - 90, "2 mins ago", id="before"),
        pytest.param(1000 + 7200, "in 2 hours", id="after"),
        pytest.param(1000, "0 s ago", id="now"),
    ],
)
def test_a_relative_time_is_formatted_from_now(at: float, text: str) -> None:
    assert format_value(at * 1000, "dateTimeFromNow", now=1000) == text


@example(1e15, "short")
@given(st.floats(1e-12, 1e15), st.sampled_from(["s", "short", "bytes", "reqps", "none"]))
def test_the_formatted_value_is_within_a_hundredth_of_the_value(value: float, unit: str) -> None:
    sizes = {"": 1, "K": 1e3, "Mil": 1e6, "Bil": 1e9, "Tri": 1e12, "Quadr": 1e15}
    sizes |= {"M": 1e6, "B": 1e9, "T": 1e12, "s": 1, "ms": 1e-3}
    sizes |= {"µs": 1e-6, "ns": 1e-9, "mins": 60, "hours": HOUR, "days": 24 * HOUR, "weeks": 168 * HOUR}
    # the length of a mean year, as in Grafana
    sizes |= {"years": 31556900}
    sizes |= {name.removesuffix("s"): size for name, size in sizes.items() if len(name) > 3 and name != "Quadr"}
    text = format_value(value, unit).removesuffix(" req/s")
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ ")
    word = text[len(number) :].strip()
    if unit in {"bytes", "decbytes"}:
        word, base = word.removesuffix("B").removesuffix("i"), 1024 if unit == "bytes" else 1000
        sizes = {prefix: base**power for power, prefix in enumerate(("", "k" if base == 1000 else "K", "M", "G", "T"))}
        sizes["P"] = base**5
        if base == 1000:
            sizes |= {"m": 1e-3, "µ": 1e-6, "n": 1e-9, "p": 1e-12}
    assert float(number) * sizes[word] == pytest.approx(value, rel=0.01)
