"""The addresses of each engine's pages, from the flags."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from exporters.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """One engine: its name in the label `engine`, and the addresses of its pages."""

    name: str
    metrics_url: str
    base_url: str
    models_url: str


def targets(upstream: str, metrics: Sequence[str]) -> tuple[Target, ...]:
    """The engines behind `upstream`: those of `--engine-metrics`, or the upstream itself.

    Raises:
        UsageError: a page has no usable address, or two engines would have one name.
    """
    upstream = upstream.rstrip("/")
    models = f"{upstream}/v1/models"  # with the names that clients use: a gateway's, where there is one
    pages = {url: _page(url) for url in metrics or (f"{upstream}/metrics",)}
    if len(pages) < len(metrics):
        duplicate = next(url for url in metrics if metrics.count(url) > 1)
        raise UsageError(f"--engine-metrics: {duplicate!r} is given twice; name each engine once")
    if len(pages) == 1:
        return tuple(Target(_host(page), url, upstream, models) for url, page in pages.items())
    hosts = [_host(page) for page in pages.values()]
    names = [
        host if hosts.count(host) == 1 else host + page.path for host, page in zip(hosts, pages.values(), strict=True)
    ]
    for url, name in zip(pages, names, strict=True):
        if names.count(name) > 1:
            raise UsageError(
                f"--engine-metrics: {url!r} and another would both be called {name!r}; give them other paths"
            )
    return tuple(
        Target(name, url, f"{page.scheme}://{page.netloc}", models)
        for name, (url, page) in zip(names, pages.items(), strict=True)
    )


def _host(page: SplitResult) -> str:
    return page.netloc.rpartition("@")[2]  # no credentials in a label


def _page(url: str) -> SplitResult:
    try:
        page = urlsplit(url)
        page.port  # noqa: B018 - reading it checks it
    except ValueError as error:
        raise UsageError(f"--engine-metrics: {url!r} is no address: {error}; write http://host:port/metrics") from error
    if page.scheme not in {"http", "https"} or not page.hostname:
        raise UsageError(f"--engine-metrics: {url!r} is no address; write http://host:port/metrics")
    return page
