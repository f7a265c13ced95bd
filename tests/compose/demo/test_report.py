"""The tables of the demo."""

import math

from rich.console import Console

from compose.demo import report
from compose.demo.request_log_totals import ClassFigures


def test_the_table_has_output_and_prompt_tokens_apart_and_streams_without_a_token() -> None:
    figures = {
        "baseline": [ClassFigures("siso", 100, 100, 1.0, 0.1, 0.2, 300.0, 1200.0, 0.0)],
        "overload": [ClassFigures("siso", 100, 40, 0.1, 9.5, math.inf, 310.0, 1250.0, 0.5)],
    }
    console = Console(width=140)
    with console.capture() as printed:
        console.print(report.before_and_after(figures, {"baseline": 60.0, "overload": 75.0}))
    lines = [[cell.strip() for cell in line.strip("┃│").split(line[0])] for line in printed.get().splitlines()[1:]]
    rows = [cells for cells in lines if len(cells) > 5]
    assert rows[0][2:9] == ["offered", "ok", "goodput", "TTFT p50", "TTFT p95", "output tokens/s", "prompt tokens/s"]
    assert rows[1][1:9] == ["baseline (60 s)", "100", "100", "100.0%", "100 ms", "200 ms", "300", "1200"]
    assert rows[2][1:9] == ["overload (75 s)", "100", "40", "10.0%", "9.5 s", "no token", "310", "1250"]
