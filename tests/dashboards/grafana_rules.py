"""Rules against faults that Grafana shows on a dashboard and that its JSON file reveals.

A rule returns the places where a dashboard breaks it. The behaviour that a rule relies on is that of @grafana/data and
@grafana/ui.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dashboards.grafana.style import GREY, PLAIN
from dashboards.live.reader import panels_of
from exporters.vocabulary.signals import Label

Page = Mapping[str, Any]
Panel = Mapping[str, Any]
Rule = Callable[[Page], list[str]]

NEUTRAL = {PLAIN, GREY, "transparent"}
"""Colours that are not verdicts."""

HEADINGS = {"lastNotNull": "Last *", "last": "Last", "max": "Max", "min": "Min", "mean": "Mean", "sum": "Total"}
"""The headings of the calculations in a legend, by which it is sorted."""

VISIBLE_ROWS = 3
"""Rows of a legend below a graph that are visible without scrolling: Grafana limits it to 35 % of the panel."""

TITLE_WORDS = 6

SMALL, LARGE = 1440 - 300, 1920
"""Pixels of the width of a page: on a screen of 1440 px beside the docked menu, and on a large one."""


WIDE = 130
"""Pixels of the longest age, duration or count."""

VARIABLE_VALUES = {"change": "max_num_seqs: 256 → 128", "burn_window": "1h", "quantile": "0.95", "span": "10m"}
"""A usual value by variable; the others select everything."""

NAMED_BY_TEXT = ("Attainment by revision", "Events by revision")
"""Tables whose rows are times."""

REGION_BOARDS = {"Load tests": "vllm-slo-load"}
"""The dashboard on which an annotation may draw regions."""


def _panels(page: Page, *types: str) -> Iterator[Panel]:
    for panel in panels_of(page["panels"]):
        if panel["type"] in types:
            yield panel


def _titles(panels: Iterable[Panel]) -> list[str]:
    return [str(panel.get("title", "")) for panel in panels]


def _defaults(panel: Panel) -> Mapping[str, Any]:
    return dict((panel.get("fieldConfig") or {}).get("defaults") or {})


def _overrides(panel: Panel) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the properties of each column, from all overrides by that name."""
    columns: dict[str, dict[str, Any]] = {}
    for override in (panel.get("fieldConfig") or {}).get("overrides") or []:
        if override["matcher"]["id"] == "byName":
            properties = columns.setdefault(str(override["matcher"]["options"]), {})
            properties.update({each["id"]: each.get("value") for each in override["properties"]})
    yield from columns.items()


def _option(panel: Panel, *path: str) -> Any:
    value: Any = panel.get("options") or {}
    for name in path:
        value = (value or {}).get(name)
    return value


def _has_mapping(settings: Mapping[str, Any], *matches: str) -> bool:
    """Whether a mapping gives absent values a text in a neutral colour."""
    return any(
        mapping.get("type") == "special"
        and mapping["options"].get("match") in matches
        and mapping["options"]["result"].get("text")
        and mapping["options"]["result"].get("color", PLAIN) in NEUTRAL
        for mapping in settings.get("mappings") or []
    )


def _absence_is_neutral(settings: Mapping[str, Any]) -> bool:
    """A missing value has the colour of the base threshold, unless a mapping or a fixed colour decides it."""
    colour = settings.get("color") or {}
    if colour.get("mode", "thresholds") != "thresholds":
        return colour.get("fixedColor", PLAIN) in NEUTRAL or colour.get("mode") not in {"fixed", "shades"}
    steps = (settings.get("thresholds") or {}).get("steps") or [{"color": "green"}]
    return steps[0]["color"] in NEUTRAL or _has_mapping(settings, "null", "null+nan")


def _legend(target: Mapping[str, Any]) -> str:
    return str(target.get("legendFormat") or "")


def _row_count(panel: Panel) -> float:
    """The number of series of a panel; infinite if it depends on labels."""
    targets = panel.get("targets") or []
    if any("{{" in _legend(target) and "topk" not in target["expr"] for target in targets):
        return float("inf")
    return len(targets)


def absence_has_no_verdict(page: Page) -> list[str]:
    """A stat or bar gauge without data is not green or vermilion."""
    return _titles(
        panel for panel in _panels(page, "stat", "gauge", "bargauge") if not _absence_is_neutral(_defaults(panel))
    )


def absence_in_a_table_has_no_verdict(page: Page) -> list[str]:
    """A coloured cell of a table without a value is not green or vermilion."""
    return [
        f"{panel['title']}: {name}"
        for panel in _panels(page, "table")
        for name, properties in _overrides(panel)
        if "thresholds" in properties and not _absence_is_neutral({**_defaults(panel), **properties})
    ]


def nan_in_a_table_has_a_text(page: Page) -> list[str]:
    """A table prints `NaN`, whatever `noValue` says, unless a mapping gives it a text."""
    faults = []
    for panel in _panels(page, "table"):
        defaults = _defaults(panel)
        # Grafana's names of the columns of values; a pivot has others, and the defaults apply to them
        columns: dict[str, Mapping[str, Any]] = {
            name: {**defaults, **each} for name, each in _overrides(panel) if name.startswith("Value")
        }
        for name, settings in (columns or {"all columns": defaults}).items():
            if settings.get("unit") != "string" and not _has_mapping(settings, "nan", "null+nan"):
                faults.append(f"{panel['title']}: {name}")
    return faults


def tables_are_sorted(page: Page) -> list[str]:
    """The order of an instant query is arbitrary and changes at each refresh."""
    return _titles(
        panel
        for panel in _panels(page, "table")
        if not _option(panel, "sortBy") and "sortBy" not in [each["id"] for each in panel.get("transformations") or []]
    )


def several_values_are_sorted(page: Page) -> list[str]:
    """The values of a query with several series would change places at each refresh.

    `sort` of PromQL does not help, because it returns equal values in any order: the rows of a table are sorted by
    every label that is shown, and by value after that.
    """
    faults = []
    for panel in _panels(page, "stat", "bargauge", "gauge"):
        sorts = [
            str(each["options"]["sort"][0]["field"])
            for each in panel.get("transformations") or []
            if each["id"] == "sortBy"
        ]
        by_label = [field for field in sorts if not field.startswith("Value")]
        # the labels of a sentence are numbers, and it has one series
        targets = [target for target in panel["targets"] if "count_values" not in target["expr"]]
        shown = {label for target in targets for label in re.findall(r"\{\{(\w+)\}\}", _legend(target))}
        is_table = all(target.get("format") == "table" for target in panel["targets"])
        values_last = sorts[: len(by_label)] == by_label and len(by_label) < len(sorts)
        if shown and not (
            shown <= set(by_label) and values_last and is_table and _option(panel, "reduceOptions", "values")
        ):
            faults.append(panel)
    return _titles(faults)


def long_legends_are_sorted(page: Page) -> list[str]:
    """The first three rows of a legend table are visible, so they must be those that matter."""
    faults = []
    for panel in _panels(page, "timeseries"):
        legend = _option(panel, "legend") or {}
        headings = ["Name", *(HEADINGS.get(calc, calc) for calc in legend.get("calcs") or [])]
        is_long = legend.get("displayMode") == "table" and _row_count(panel) > VISIBLE_ROWS
        if (is_long or legend.get("sortBy")) and legend.get("sortBy") not in headings:
            faults.append(panel)
    return _titles(faults)


def bar_gauges_start_at_zero(page: Page) -> list[str]:
    """Without `min`, the smallest bar is empty."""
    return _titles(panel for panel in _panels(page, "bargauge") if _defaults(panel).get("min") != 0)


def bar_gauges_name_a_single_bar(page: Page) -> list[str]:
    """Grafana hides the name of a single bar without a display name."""
    return _titles(
        panel
        for panel in _panels(page, "bargauge")
        if "{{" in _legend(panel["targets"][0])
        and not any("displayName" in settings for settings in (_defaults(panel), *dict(_overrides(panel)).values()))
    )


def numbers_are_not_filterable(page: Page) -> list[str]:
    """The symbol of the filter takes the width of the heading; a list of all numbers is not a filter."""
    faults = []
    for panel in _panels(page, "table"):
        defaults = _defaults(panel)
        filterable = [name for name, each in _overrides(panel) if each.get("custom.filterable") and each.get("unit")]
        if filterable or ((defaults.get("custom") or {}).get("filterable") and defaults.get("unit") != "string"):
            faults.append(panel)
    return _titles(faults)


def units_are_readable(page: Page) -> list[str]:
    """`cps` is printed as `c/s`."""
    return _titles(panel for panel in panels_of(page["panels"]) if _defaults(panel).get("unit") in {"cps", "cpm"})


def counts_have_no_decimals(page: Page) -> list[str]:
    """`increase` extrapolates, so a count of events is not whole."""
    faults = []
    for panel in _panels(page, "stat", "bargauge", "gauge", "table"):
        columns = dict(_overrides(panel))
        for target in panel["targets"]:
            name = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
            settings = {**_defaults(panel), **columns.get(name, {})}
            is_count = re.search(r"\bincrease\(", target["expr"]) and not re.search(
                r"\b(?:round|ceil|floor)\(|/", target["expr"]
            )
            if is_count and settings.get("unit") in {"short", "none", "locale"} and settings.get("decimals") != 0:
                faults.append(panel)
                break
    return _titles(faults)


def counts_keep_their_digits(page: Page) -> list[str]:
    """`short` scales a number, so without decimals 1,541 is printed as 2 K."""
    faults = []
    for panel in _panels(page, "stat", "bargauge", "gauge", "table"):
        columns = {name: {**_defaults(panel), **each} for name, each in _overrides(panel)}
        settings = [_defaults(panel), *columns.values()]
        if any(each.get("unit") == "short" and each.get("decimals") == 0 for each in settings):
            faults.append(panel)
    return _titles(faults)


def titles_are_short_nouns(page: Page) -> list[str]:
    """Titles of rows too; a question mark or a verb form of a question is not a noun."""
    return [
        title
        for title in _titles(panels_of(page["panels"]))
        if title.endswith("?")
        or len(re.sub(r"\$\w+", "", title).split()) > TITLE_WORDS
        or re.match(r"(?:who|what|when|where|which|why|how|is|are|does|do|did)\b", title, re.IGNORECASE)
    ]


def several_values_have_a_text_size(page: Page) -> list[str]:
    """Automatic fonts of a stat panel become smaller with each value, and differ in the last line."""
    return _titles(
        panel
        for panel in _panels(page, "stat")
        if _row_count(panel) > 1 and not (_option(panel, "text", "valueSize") and _option(panel, "text", "titleSize"))
    )


def _enabled_annotations(page: Page) -> list[Mapping[str, Any]]:
    annotations = (page.get("annotations") or {}).get("list") or []
    return [each for each in annotations if each.get("enable", True)]


def load_tests_are_on_their_own_board(page: Page) -> list[str]:
    names = [str(each["name"]) for each in _enabled_annotations(page)]
    return [name for name in names if REGION_BOARDS.get(name, page["uid"]) != page["uid"]]


def annotations_are_marks(page: Page) -> list[str]:
    """A region tints every panel and covers other annotations.

    A mark has the value of the query as its time, or the query has a value only at the first point of a state: Grafana
    increases the step of an annotation with the time range, so another offset than the step loses marks.
    """
    return [
        str(each["name"])
        for each in _enabled_annotations(page)
        if not each.get("useValueForTime")
        and not re.search(r"\bunless\b.*\boffset \$__interval\b", str(each.get("expr")))
        and REGION_BOARDS.get(str(each["name"])) is None
    ]


def logarithmic_axes_have_no_text_for_null(page: Page) -> list[str]:
    """Grafana 10 prints `noValue` at the ticks whose labels are hidden."""
    return _titles(
        panel
        for panel in _panels(page, "timeseries")
        if _defaults(panel).get("noValue")
        and ((_defaults(panel).get("custom") or {}).get("scaleDistribution") or {}).get("type", "linear") != "linear"
    )


def dotted_lines_are_visible(page: Page) -> list[str]:
    """A dotted line of one pixel cannot be seen."""
    faults = []
    for panel in _panels(page, "timeseries"):
        width = (_defaults(panel).get("custom") or {}).get("lineWidth", 1)
        for override in (panel.get("fieldConfig") or {}).get("overrides") or []:
            properties = {each["id"]: each.get("value") for each in override["properties"]}
            is_dotted = (properties.get("custom.lineStyle") or {}).get("fill") == "dot"
            if is_dotted and (properties.get("custom.lineWidth") or width) < 2:
                faults.append(panel)
                break
    return _titles(faults)


def columns_fit_a_small_screen(page: Page) -> list[str]:
    """Without a horizontal scrollbar and with whole headers; the last columns would be invisible."""
    faults = []
    for panel in _panels(page, "table"):
        widths = _column_widths(panel, SMALL)
        if sum(widths.values()) > _inner_width(panel, SMALL):
            faults.append(f"{panel['title']}: {sum(widths.values()) - _inner_width(panel, SMALL):.0f} px too wide")
        faults += [f"{panel['title']}: {name}" for name, width in widths.items() if width < _text_width(name)]
    return faults


def columns_fill_a_large_screen(page: Page) -> list[str]:
    """If every column has a width, the rest of the panel is blank."""
    return _titles(
        panel
        for panel in _panels(page, "table")
        if (widths := _column_widths(panel, LARGE)) and sum(widths.values()) < _inner_width(panel, LARGE) - 1
    )


def headings_are_capitalised(page: Page) -> list[str]:
    """As on the other tables, and as titles."""
    return [
        f"{panel['title']}: {name}"
        for panel in _panels(page, "table")
        for _, properties in _overrides(panel)
        if (name := str(properties.get("displayName", "")))[:1].islower()
    ]


def _column_widths(panel: Panel, screen: int) -> dict[str, float]:
    """By heading, as `computeColWidths` of @grafana/ui; none if the columns depend on the data."""
    transformations = {each["id"]: each["options"] for each in panel.get("transformations") or []}
    if "groupingToMatrix" in transformations:
        return {}
    organize = transformations.get("organize", {})
    overrides, custom = dict(_overrides(panel)), _defaults(panel).get("custom") or {}
    columns = {}
    for name in organize.get("indexByName", ()):
        settings = overrides.get(name, {})
        if not organize.get("excludeByName", {}).get(name):
            width, least = settings.get("custom.width", 0), settings.get("custom.minWidth", custom.get("minWidth", 150))
            columns[settings.get("displayName", name)] = (width, least)
    rest = _inner_width(panel, screen) - sum(width for width, _ in columns.values())
    shared = rest / max(1, [width for width, _ in columns.values()].count(0))
    return {name: width or max(least, shared) for name, (width, least) in columns.items()}


def _inner_width(panel: Panel, screen: int) -> float:
    """Pixels within the padding of a panel, beside the scrollbar."""
    return _width(panel["gridPos"]["w"], screen) - 18 - 8


def _width(across: float, screen: int) -> float:
    """Pixels of a panel; the page has 24 columns with gaps of 8 pixels."""
    return (screen - 32 - 23 * 8) / 24 * across + 8 * (across - 1)


def _text_width(text: str) -> float:
    """Pixels of a cell with a text."""
    return 7.5 * len(text) + 12


def texts_have_no_text_for_absence(page: Page) -> list[str]:
    """With the unit of a date, Grafana reads a text as NaN, and shows the text that a mapping has for NaN."""
    faults = []
    for panel in _panels(page, "table", "stat", "bargauge"):
        settings = dict(_overrides(panel))
        for label in _text_columns(panel):
            column = {**_defaults(panel), **settings.get(label, {})}
            special = any(each.get("type") == "special" for each in column.get("mappings") or [])
            if column.get("unit") != "string" or special:
                faults.append(f"{panel['title']}: {label}")
    return faults


def _text_columns(panel: Panel) -> set[str]:
    """The labels that are columns."""
    return {
        name
        for each in panel.get("transformations") or []
        if each["id"] == "organize"
        for name in each["options"].get("indexByName", ())
        if not each["options"].get("excludeByName", {}).get(name) and name in set(Label)
    }


def ages_durations_and_counts_are_wide(page: Page) -> list[str]:
    """`41 minutes ago` in a narrower column is drawn as `1 minutes ago`."""
    return [
        f"{panel['title']}: {settings.get('displayName', name)}"
        for panel in _panels(page, "table")
        for name, settings in _overrides(panel)
        if settings.get("unit") in {"dateTimeFromNow", "locale", "suffix:s", "suffix:ms", "suffix:min", "suffix:d"}
        and settings.get("custom.width", settings.get("custom.minWidth", 0)) < WIDE
    ]


def durations_have_one_unit(page: Page) -> list[str]:
    """Grafana's units of durations change with the value, and print 100 s as `1.67 mins`."""
    scaled = {"ns", "µs", "ms", "s", "m", "h", "d", "dtdurations", "dtdurationms", "dthms", "clocks"}
    faults = []
    for panel in panels_of(page["panels"]):
        found = {_defaults(panel).get("unit"), _option(panel, "yAxis", "unit"), _option(panel, "cellValues", "unit")}
        found |= {settings.get("unit") for _, settings in _overrides(panel)}
        if found & scaled:
            faults.append(panel)
    return _titles(faults)


def axes_of_zeros_are_short(page: Page) -> list[str]:
    """Without a soft maximum, the axis of a line at 0 ends at 100."""
    return _titles(
        panel
        for panel in _panels(page, "timeseries")
        if _defaults(panel).get("min") == 0
        and "max" not in _defaults(panel)
        and not 0 < (_defaults(panel).get("custom") or {}).get("axisSoftMax", 0) <= 1
    )


def shares_have_the_whole_scale(page: Page) -> list[str]:
    """A failure ratio of 2 % is not drawn in the strongest colour."""
    return _titles(
        panel
        for panel in _panels(page, "heatmap")
        if _option(panel, "cellValues", "unit") == "percentunit"
        and (_option(panel, "color", "min"), _option(panel, "color", "max")) != (0, 1)
    )


def legends_are_low(page: Page) -> list[str]:
    """A table below a graph has a row for each series and one for the headings."""
    return _titles(
        panel
        for panel in _panels(page, "timeseries")
        if _option(panel, "legend", "placement") == "bottom" and _option(panel, "legend", "displayMode") == "table"
    )


def windows_are_named(page: Page) -> list[str]:
    """By the title of the panel or of the column, as two values beside each other may have two windows."""
    if page["uid"] == "vllm-slo-flips":
        # its first row names the two windows, which all panels have
        return []
    faults = []
    for panel in _panels(page, "stat", "bargauge", "table"):
        headings = {name: str(each.get("displayName", "")) for name, each in _overrides(panel)}
        for target in panel["targets"]:
            heading = headings.get(f"Value #{target['refId']}", _legend(target))
            windows = re.findall(r"\[\$__(rate_interval|range)[]:]", target["expr"])
            name = "in range" if "range" in windows else "1 min" if windows else ""
            if name not in f"{panel['title']} {heading}" and heading != "order of the rows":
                faults.append(f"{panel['title']}: {heading}")
    return [each for each in faults if not each.startswith(NAMED_BY_TEXT)]


def absence_claims_no_cause(page: Page) -> list[str]:
    """An empty panel or its description says which series is missing; nobody has measured why."""
    return _titles(
        panel
        for panel in panels_of(page["panels"])
        if panel.get("targets")
        and not re.fullmatch(r"no (?:series|result from) [\w:]+ for this selection", _no_value(panel))
        and not re.search(r" Series: [\w:]+\.(?= |$)", panel["description"])
    )


def _no_value(panel: Panel) -> str:
    return str(_defaults(panel).get("noValue", ""))


def variables_fit_one_line(page: Page) -> list[str]:
    """Beside the link to the other dashboards; Grafana 12.3 has the data source and annotations in a menu."""
    width = 150.0
    for variable in page.get("templating", {}).get("list", []):
        if variable.get("hide", 0) == 0:
            value = VARIABLE_VALUES.get(variable["name"], "All")
            width += 7.5 * len(str(variable.get("label") or variable["name"])) + 7.5 * len(value) + 60
    return [f"{width:.0f} px"] if width > SMALL - 32 else []


def missing_cells_of_a_matrix_are_null(page: Page) -> list[str]:
    """By default such a cell is an empty text, which has the text of a panel without rows."""
    return _titles(
        panel
        for panel in panels_of(page["panels"])
        for step in panel.get("transformations") or []
        if step["id"] == "groupingToMatrix" and step["options"].get("emptyValue") != "null"
    )
