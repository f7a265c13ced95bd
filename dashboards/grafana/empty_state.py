"""What a panel without data says: the series that is missing, because the cause is not known."""

import re
from collections.abc import MutableMapping
from typing import Any

from dashboards.live.reader import MAY_BE_EMPTY

NO_VALUE = "no value"
"""The text of a stat or a bar, which are too narrow for the name of a series: the description has it."""

_ON_A_PHONE = 38
_LONGEST = {width: 4 * width - 1 for width in range(1, 10)}
"""The characters of the longest series that fits a panel of this width: Grafana clips longer words."""

_MAY_BE_WITHOUT_RESULT = re.compile(r" (?:[<>]=?|==|!=|and|unless|/) ")
"""A comparison or a division may have no result although its series exist."""

_SERIES = re.compile(r'__name__=~"([^"]+)"|\b((?:llm[_:][\w:]+)|DCGM_\w+|ALERTS\w*|up|scrape_\w+)\b(?!\s*[=(])')


def state_empty(panel: MutableMapping[str, Any]) -> None:
    """Set the text of a panel without data; if the series to query does not fit, the description ends with it."""
    query = next((each["expr"] for each in panel.get("targets", ())), "")
    if panel["type"] == "logs" or (match := _SERIES.search(query)) is None:
        return
    series = (match[1] or match[2]).replace("[:_]", ":")
    defaults = panel["fieldConfig"]["defaults"]
    what = "result" if _MAY_BE_WITHOUT_RESULT.search(query) else "series"
    if panel["type"] in {"stat", "bargauge"}:
        defaults["noValue"] = NO_VALUE
        others = [each for each in defaults.get("mappings", ()) if each["type"] != "special"]
        result = {"text": NO_VALUE, "color": "text", "index": 0}
        defaults["mappings"] = [*others, {"type": "special", "options": {"match": "null+nan", "result": result}}]
    elif (defaults.get("custom") or {}).get("scaleDistribution", {}).get("type", "linear") != "linear":
        # Grafana 10 prints the text at each tick of a logarithmic axis without a label
        pass
    elif len(series) <= _LONGEST.get(panel["gridPos"]["w"], _ON_A_PHONE):
        defaults["noValue"] = f"no {'result from' if what == 'result' else what} {series} for this selection"
        return
    else:
        defaults["noValue"] = f"no {what} for this selection; the description has its series"
    text, separator, reason = panel["description"].partition(f" {MAY_BE_EMPTY}")
    sentence = f" Series: {series}."
    panel["description"] = f"{text.removesuffix(sentence)}{sentence}{separator}{reason}"
