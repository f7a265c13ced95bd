"""The frame of every page, and the texts of times and values. All texts are escaped: attributes are data of clients."""

from datetime import UTC, datetime
from html import escape
from typing import Any

import msgspec

from exporters.analysis.traces.request_search import link

POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy: no scripts, and nothing from another host."""

WORST = escape(link(verdict="bad", sort="slowest", limit="10"))


def page(title: str, body: str) -> str:
    """A complete page; `title` is escaped here, `body` is HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="/style.css"></head>'
        f'<body><header><a href="/">Requests</a><a href="{WORST}">Worst ten bad requests</a>'
        f"</header><main>{body}</main></body></html>\n"
    )


def error_page(title: str, lines: list[str]) -> str:
    return page(title, f"<h1>{escape(title)}</h1>" + "".join(f"<p>{escape(line)}</p>" for line in lines))


def moment(nanoseconds: int) -> str:
    """A time in UTC with milliseconds."""
    milliseconds = nanoseconds // 1_000_000
    at = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d} UTC"


def duration(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return "-"
    milliseconds = nanoseconds / 1e6
    if milliseconds < 1000:
        return f"{milliseconds:.3g} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:,.2f} s"


def value(of: Any) -> str:
    """The value of an attribute as text."""
    return of if isinstance(of, str) else msgspec.json.encode(of).decode()


def verdict_mark(verdict: str | None, text: str | None = None) -> str:
    """A coloured verdict; `text` is shown instead of its name."""
    if verdict is None:
        return "-"
    return f'<span class="verdict {escape(verdict)}">{escape(text or verdict)}</span>'
