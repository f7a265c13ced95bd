"""What a panel without data says: the series that is missing, because the cause is not known."""

import re
from collections.abc import MutableMapping
from typing import Any

from dashboards.live.reader import MAY_BE_EMPTY

NO_VALUE = "no value"
"""The text of a stat or a bar, which are too narrow for the name of a series: the description has it."""

_MAY_BE_WITHOUT_RESULT = re.compile(r" (?:[<>]=?|==|!=|and|unless|/) ")
"""A comparison or a division may have no result although its series exist."""

_SERIES = re.compile(r'__name__=~"([^"]+)"|\b((?:llm[_:][\w:]+)|ALERTS\w*|up|scrape_\w+)\b(?!\s*[=(])')


def state_empty(panel: MutableMapping[str, Any]) -> None:
    """Set the text of a panel without data, and end its description with the series to query."""
    query = next((each["expr"] for each in panel.get("targets", ())), "")
    if panel["type"] == "logs" or (match := _SERIES.search(query)) is None:
        return
    series = (match[1] or match[2]).replace("[:_]", ":")
    defaults = panel["fieldConfig"]["defaults"]
    if panel["type"] in {"stat", "bargauge"}:
        defaults["noValue"] = NO_VALUE
        others = [each for each in defaults.get("mappings", ()) if each["type"] != "special"]
        result = {"text": NO_VALUE, "color": "text", "index": 0}
        defaults["mappings"] = [*others, {"type": "special", "options": {"match": "null+nan", "result": result}}]
        text, separator, reason = panel["description"].partition(f" {MAY_BE_EMPTY}")
        sentence = f" Series: {series}."
        panel["description"] = f"{text.removesuffix(sentence)}{sentence}{separator}{reason}"
    elif (defaults.get("custom") or {}).get("scaleDistribution", {}).get("type", "linear") == "linear":
        # on a logarithmic axis, Grafana 10 prints the text at each tick without a label
        what = "result from" if _MAY_BE_WITHOUT_RESULT.search(query) else "series"
        defaults["noValue"] = f"no {what} {series} for this selection"
