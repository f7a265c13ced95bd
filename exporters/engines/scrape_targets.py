"""The URLs of each engine, from the flags."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from exporters.text.addresses import check_host
from exporters.text.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """One engine: its name in the label `engine`, and the URLs that are requested."""

    name: str
    metrics_url: str
    base_url: str
    models_url: str


def targets(upstream: str, metrics: Sequence[str]) -> tuple[Target, ...]:
    """The engines of `--engine-metrics`, or the upstream itself.

    Raises:
        UsageError: a URL is invalid, or two engines would have the same name.
    """
    upstream = upstream.rstrip("/")
    # The upstream's models, because a gateway may have other names of models than its engines, and clients use those.
    models = f"{upstream}/v1/models"
    urls = {url: _split(url) for url in metrics or (f"{upstream}/metrics",)}
    if len(urls) < len(metrics):
        duplicate = next(url for url in metrics if metrics.count(url) > 1)
        raise UsageError(f"--engine-metrics: {duplicate!r} is given twice; give each engine once")
    if len(urls) == 1:
        return tuple(Target(_host(parts), url, upstream, models) for url, parts in urls.items())
    hosts = Counter(map(_host, urls.values()))
    engines: dict[str, Target] = {}
    for url, parts in urls.items():
        host = _host(parts)
        name = host if hosts[host] == 1 else host + parts.path
        if name in engines:
            raise UsageError(
                f"--engine-metrics: {engines[name].metrics_url!r} and {url!r} would both have the name {name!r}; give "
                "them different paths"
            )
        engines[name] = Target(name, url, f"{parts.scheme}://{parts.netloc}", models)
    return tuple(engines.values())


def _host(url: SplitResult) -> str:
    # The host becomes a label, so it has no credentials.
    return url.netloc.rpartition("@")[2]


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - checks the port
        check_host(parts.hostname or "")
    except ValueError as error:
        raise UsageError(f"--engine-metrics: {url!r} is not a URL: {error}; write http://host:port/metrics") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"--engine-metrics: {url!r} is not a URL; write http://host:port/metrics")
    return parts
