"""The tables at the end of the demo: figures before and after the config change, and the checks."""

import math
from collections.abc import Mapping, Sequence

from rich.table import Table

from compose.demo.checks import BASELINE_SETTLE, CHANGE_SETTLE, OVERLOAD_SETTLE, SETTING, Check
from compose.demo.request_log_totals import ClassFigures
from exporters.text.units import number
from loadgen.report.tables import format_seconds


def before_and_after(figures: Mapping[str, Sequence[ClassFigures]], seconds: Mapping[str, float]) -> Table:
    """`figures` and `seconds` by window, in order."""
    table = Table("class", "window", title=f"Before and after {SETTING}=true, from the request log")
    for title in (
        *("offered", "ok", "goodput", "TTFT p50", "TTFT p95"),
        *("output tokens/s", "prompt tokens/s", "cache hits"),
    ):
        table.add_column(title, justify="right")
    windows = list(figures)
    for index, first in enumerate(figures[windows[0]]):
        for window in windows:
            row = figures[window][index]
            table.add_row(
                first.name if window == windows[0] else "",
                f"{window} ({seconds[window]:.0f} s)",
                str(row.offered),
                str(row.ok),
                _share(row.goodput),
                _ttft(row.ttft_p50),
                _ttft(row.ttft_p95),
                f"{row.output_tokens_per_second:.0f}",
                f"{row.prompt_tokens_per_second:.0f}",
                _share(row.cache_hit_ratio),
                end_section=window == windows[-1],
            )
    table.caption = (
        "Requests count in the window of their arrival, tokens in that of the end of their request. Excluded: the "
        f"first {number(BASELINE_SETTLE)} s of the baseline, {number(OVERLOAD_SETTLE)} s of the overload and "
        f"{number(CHANGE_SETTLE)} s after the config change. TTFT: a stream that ended without a first token is "
        "slower than any other. Prompt tokens exclude cached tokens."
    )
    return table


def check_table(checks: Sequence[Check]) -> Table:
    table = Table("", "claim", "result", title="Checks")
    for check in checks:
        table.add_row("[green]passed[/]" if check.passed else "[bold red]FAILED[/]", check.claim, check.result)
    return table


def _ttft(seconds: float | None) -> str:
    return "no token" if seconds == math.inf else format_seconds(seconds)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
