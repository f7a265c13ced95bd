"""The predictions of `vllm-slo whatif` as a table, as JSON, and as a page with the frontier of cost and attainment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from compose.experiments.report.frontier import STYLE, Point, frontier, marks
from compose.experiments.report.tables import Grid
from compose.whatif.prediction import Errors, Prediction, budget_use
from compose.whatif.recorded_traffic import Attainment, RecordedTraffic
from exporters.text.units import spell_duration
from exporters.vocabulary.slo_file import SloFile
from loadgen.report.html_tables import table
from loadgen.report.markup import element
from loadgen.report.page import html_page
from loadgen.report.plot_area import Area, figure, legend, linear, percent, plain

TOLERANCE = 0.1
"""Difference of a share of good requests beyond its interval from which the prediction is not to be trusted."""

UNTRUSTED = "NOT TO BE TRUSTED for this workload: the prediction for the recorded settings is wrong for"
_STYLE = STYLE + ".line.interval { stroke: var(--dim); stroke-width: 1 }\nfigure { max-width: 30rem }\n"
_PLOTS_NOTE = (
    "The numbers are those of the rows above. On the frontier, no other row has more good requests at the same cost or "
    "less. A horizontal line is the interval in brackets: where two overlap, the simulator's error does not support "
    "the difference."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The predictions, of which the first is for the recorded settings; `price` of a GPU hour."""

    traffic: RecordedTraffic
    found: Sequence[Prediction]
    errors: Errors
    price: float | None
    slos: SloFile

    @property
    def classes(self) -> Sequence[str]:
        return [*self.traffic.attained]

    @property
    def contradicted(self) -> list[str]:
        """The classes of which the log says something else than the prediction for its settings."""
        predicted, lines = self.found[0], []
        for name, attained in self.traffic.attained.items():
            if name in predicted.attained:
                low, high = predicted.interval(name)
                if not low - TOLERANCE <= attained.share <= high + TOLERANCE:
                    lines.append(
                        f"{name}: {_percent(attained)} recorded, {_percent(predicted.attained[name])} predicted"
                    )
        return lines


def grid(answer: Answer) -> Grid:
    """A row for the log, and for each combination."""
    traffic, names = answer.traffic, answer.classes
    costs = [] if answer.price is None else ["cost per hour", "per 1M output tokens"]
    headings = ["settings", *names, "budget use", "GPUs", *costs]
    recorded = [*(_percent(each) for each in traffic.attained.values()), _budget(traffic.events, answer.slos)]
    rows = [["measured, from the log", *recorded, *[""] * (1 + len(costs))]]
    for prediction in answer.found:
        rows.append([prediction.combination.name, *(_cell(prediction, answer.found[0], name) for name in names)])
        rows[-1] += [_budget(prediction.events, answer.slos), f"{prediction.combination.gpus}"]
        if answer.price is not None:
            hour = answer.price * prediction.combination.gpus
            tokens = prediction.output_tokens / prediction.seconds * 3600
            rows[-1] += [f"{hour:.2f}", f"{hour / tokens * 1e6:.2f}" if tokens else "-"]
    title = f"Good requests of {len(traffic.requests)} in {spell_duration(round(traffic.seconds))}, by class"
    return Grid(title, headings, rows, labels=1)


def notes(answer: Answer) -> Iterator[str]:
    """What the table means, and what limits it."""
    errors, traffic = answer.errors, answer.traffic
    yield (
        f"In brackets: of engines slower and faster by the median error of the simulator, {errors.tpot:.0%}, and "
        f"{errors.ttft:.0%} for TTFT. ~: not distinguishable from the recorded settings."
    )
    yield "Budget use: the burn rate of the class and SLO whose error budget is used fastest; 1x uses it up exactly."
    if traffic.assumed:
        yield f"{traffic.assumed} requests did not end: their lengths are estimated from those of their class."
    if not traffic.has_prefixes:
        yield "The log has no prefix hashes, so no prompt shares a prefix; write it with --log-prefix-hashes."


def page(answer: Answer) -> str:
    """The table with its notes, and a plot for each class: cost against attainment, with the numbers of the rows."""
    shown, title = grid(answer), "What if"
    rows = [["" if number == 0 else f"{number}", *row] for number, row in enumerate(shown.rows)]
    content = [
        element("h1", title),
        *_warning(answer),
        table(shown.title, ["", *shown.headings], rows, left=(0, 1)),
        *(element("p", note, class_="note") for note in notes(answer)),
        element("h2", "Cost and attainment"),
        element("p", _PLOTS_NOTE, class_="note"),
        element("div", *(_plot(answer, name) for name in answer.classes), class_="plots"),
    ]
    return html_page(title, content, _STYLE)


def _warning(answer: Answer) -> Iterator[Element]:
    if answer.contradicted:
        lines = element("ul", *(element("li", each) for each in answer.contradicted))
        yield element("section", element("strong", UNTRUSTED), lines, class_="invalid", role="alert")


def _plot(answer: Answer, name: str) -> Element:
    """Attainment of a class to the right, cost upwards; a horizontal line is the interval."""
    unit = "GPUs" if answer.price is None else "cost per hour"
    rows = {f"{number}": each for number, each in enumerate(answer.found, start=1) if name in each.attained}
    every = [
        Point(number, "", each.attained[name].share, each.combination.gpus * (answer.price or 1))
        for number, each in rows.items()
    ]
    best = frontier(every)
    area = Area(
        linear("good requests", 1.0, percent),
        linear(unit, 1.15 * max((point.cost for point in every), default=1), plain),
    )
    intervals = [
        element(
            "path",
            d=f"M{area.left(low):.1f} {area.top(point.cost):.1f}H{area.left(high):.1f}",
            class_="line interval",
        )
        for point in every
        for low, high in [rows[point.name].interval(name)]
    ]
    title = f"{name}: good requests and {unit}"
    sentence = f"On the frontier: {', '.join(point.name for point in best) or 'none'}."

    def told(point: Point) -> str:
        return f"{rows[point.name].combination.name}: {point.gain:.1%} good, {point.cost:g} {unit}"

    dots = marks(area, every, best, told)
    key = legend([("best", "on the frontier"), ("other", "not on the frontier")])
    return figure(title, sentence, key, area.draw(title, [*intervals, *dots]))


def document(answer: Answer) -> dict[str, object]:
    """The content of the JSON output; shares are from 0 to 1, `least` and `most` the interval."""
    traffic, price = answer.traffic, answer.price
    return {
        "requests": len(traffic.requests),
        "seconds": round(traffic.seconds, 3),
        "assumed_lengths": traffic.assumed,
        "prefix_hashes": traffic.has_prefixes,
        "errors": {"ttft": answer.errors.ttft, "tpot": answer.errors.tpot},
        "contradictions": answer.contradicted,
        "recorded": {name: round(each.share, 6) for name, each in traffic.attained.items()},
        "recorded_budget_use": _budgets(traffic.events, answer.slos),
        "predictions": [
            {
                "settings": dict(each.combination.changes),
                "gpus": each.combination.gpus,
                "cost_per_hour": None if price is None else price * each.combination.gpus,
                "output_tokens": each.output_tokens,
                "output_tokens_per_second": round(each.output_tokens / each.seconds, 3),
                "good": {
                    name: {
                        "share": round(attained.share, 6),
                        "least": round(each.interval(name)[0], 6),
                        "most": round(each.interval(name)[1], 6),
                    }
                    for name, attained in each.attained.items()
                },
                "budget_use": _budgets(each.events, answer.slos),
            }
            for each in answer.found
        ],
    }


def _cell(prediction: Prediction, unchanged: Prediction, name: str) -> str:
    if name not in prediction.attained:
        return "-"
    low, high = prediction.interval(name)
    before = unchanged.interval(name) if name in unchanged.attained else (low, high)
    same = prediction is not unchanged and low <= before[1] and high >= before[0]
    return f"{_percent(prediction.attained[name])} ({low:.0%} to {high:.0%}){' ~' * same}"


def _budget(events: Mapping[tuple[str, str], Attainment], slos: SloFile) -> str:
    return next((f"{use:.1f}x, {name} {slo}" for use, name, slo in budget_use(events, slos)), "-")


def _budgets(events: Mapping[tuple[str, str], Attainment], slos: SloFile) -> list[dict[str, object]]:
    return [{"class": name, "slo": slo, "use": round(use, 6)} for use, name, slo in budget_use(events, slos)]


def _percent(attained: Attainment) -> str:
    return f"{attained.share:.0%}"
