"""The names of engines in the label `engine`: those of `--engine-name`, else their addresses."""

import re
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from exporters.engines.scrape_targets import Target, targets
from exporters.text.addresses import is_loopback
from exporters.text.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/\[\]-]*")


def named_targets(upstream: str, metrics: Sequence[str], names: Sequence[str]) -> tuple[Target, ...]:
    """The engines of `--engine-metrics` or the upstream, with the names of `--engine-name`.

    A single engine at a loopback address has the host's name by default, as that address is the same on every host.

    Raises:
        UsageError: a URL is invalid or, one per line, all mistakes in the names.
    """
    engines = targets(upstream, metrics)
    urls = [*metrics] if metrics else [upstream]
    given, mistakes = _parse(names, urls)
    named = tuple(
        replace(engine, name=given.get(url) or _default(engine, only=len(engines) == 1))
        for engine, url in zip(engines, urls, strict=True)
    )
    mistakes += [
        f"--engine-name: {name!r} is the name of {count} engines; give each its own"
        for name, count in Counter(engine.name for engine in named).items()
        if count > 1
    ]
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return named


def _parse(flags: Sequence[str], urls: list[str]) -> tuple[dict[str, str], list[str]]:
    """Names by URL, and the mistakes."""
    names: dict[str, str] = {}
    mistakes: list[str] = []
    for flag in flags:
        url, _, name = flag.rpartition("=")
        if not url or not _NAME.fullmatch(name):
            mistakes.append(
                f"--engine-name: {flag!r} is not URL=NAME, such as http://127.0.0.1:8000=vllm-0; "
                "use letters, digits and _.:/- in the name"
            )
        elif url not in urls:
            mistakes.append(f"--engine-name: {url!r} is not an engine of this sidecar; known: {', '.join(urls)}")
        elif url in names:
            mistakes.append(f"--engine-name: {url!r} has two names, {names[url]!r} and {name!r}; keep one")
        else:
            names[url] = name
    return names, mistakes


def _default(engine: Target, *, only: bool) -> str:
    parts = urlsplit(engine.metrics_url)
    if not only or not is_loopback(parts.hostname or ""):
        return engine.name
    return socket.gethostname() + (f":{parts.port}" if parts.port else "")
