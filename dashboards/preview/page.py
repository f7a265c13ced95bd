"""Renders a document as a self-contained HTML page, or as a page that fetches its data."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class PageSet:
    """Linked pages: titles by name, names by uid, and the URL of a page with `*` for its name."""

    titles: Mapping[str, str]
    uids: Mapping[str, str]
    link: str

    def standalone_page(self, name: str, document: Mapping[str, Any]) -> str:
        """A page that contains its data and the charting library."""
        return self._page(name, {"data": document}, library=library())

    def live_page(self, name: str, refresh: float) -> str:
        """A page that fetches its data every `refresh` seconds."""
        settings = {"data": None, "source": f"{name}/data", "refresh": refresh * 1000}
        return self._page(name, settings, source=' src="plotly.js"')

    def _page(self, name: str, settings: Mapping[str, Any], *, source: str = "", library: str = "") -> str:
        page = {"name": name, "pages": self.titles, "uids": self.uids, "link": self.link, **settings}
        parts = {
            "title": escape(f"{self.titles[name]} (preview)"),
            "css": _read("preview.css"),
            "page": to_json(page).replace("<", "\\u003c"),
            "source": source,
            "library": library,
            "script": _read("preview.js"),
        }
        return re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], _read("page.html"))


def library() -> str:
    """The script of the charting library."""
    return str(get_plotlyjs())


def to_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
