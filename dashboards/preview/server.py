"""Serves the pages of the preview over HTTP; data is cached for one refresh interval."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dashboards.preview.page import PageSet, library, to_json
from exporters.text.errors import UsageError

_MAX_CACHED = 64

Selection = Mapping[str, tuple[str, ...]]
Draw = Callable[[str, Selection, str | None, str | None], Mapping[str, Any]]
"""Returns the document of a dashboard; arguments: name, selection, start and end of the time range as in URLs."""


@dataclass(frozen=True, slots=True)
class PreviewServer:
    """The pages, and the function that draws one for the current time."""

    pages: PageSet
    draw: Draw
    refresh: float
    _cache: dict[str, tuple[float, str]] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/", self._first),
                web.get("/plotly.js", self._library),
                # Grafana's paths, for links from alerts and bookmarks
                web.get("/d/{uid}", self._by_uid),
                web.get("/d/{uid}/{title}", self._by_uid),
                web.get("/{name}", self._page),
                web.get("/{name}/data", self._data),
            ]
        )
        return application

    async def _first(self, request: web.Request) -> web.Response:
        raise web.HTTPFound(next(iter(self.pages.titles)))

    async def _by_uid(self, request: web.Request) -> web.Response:
        uid = request.match_info["uid"]
        if uid not in self.pages.uids:
            raise web.HTTPNotFound(text=f"no dashboard has the uid {uid!r}; available: {', '.join(self.pages.uids)}")
        raise web.HTTPFound(request.url.with_path(f"/{self.pages.uids[uid]}", keep_query=True).relative())

    async def _library(self, request: web.Request) -> web.Response:
        response = web.Response(text=library(), content_type="text/javascript")
        response.headers["Cache-Control"] = "max-age=86400"
        response.enable_compression()
        return response

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=self.pages.live_page(self._name(request), self.refresh), content_type="text/html")

    async def _data(self, request: web.Request) -> web.Response:
        name, query = self._name(request), request.query
        selections = {key[4:]: tuple(query.getall(key)) for key in query if key.startswith("var-")}
        # concurrent viewers of a page share one set of queries
        async with self._locks.setdefault(name, asyncio.Lock()):
            drawn_at, text = self._cache.get(request.path_qs, (0.0, ""))
            if not text or time.monotonic() - drawn_at >= self.refresh:
                try:
                    document = await asyncio.to_thread(self.draw, name, selections, query.get("from"), query.get("to"))
                except UsageError as error:
                    return web.Response(status=502, text=str(error))
                text = to_json(document)
                self._cache.pop(request.path_qs, None)
                self._cache[request.path_qs] = time.monotonic(), text
                if len(self._cache) > _MAX_CACHED:
                    del self._cache[next(iter(self._cache))]
        response = web.Response(text=text, content_type="application/json")
        response.enable_compression()
        return response

    def _name(self, request: web.Request) -> str:
        name = request.match_info["name"]
        if name not in self.pages.titles:
            raise web.HTTPNotFound(text=f"no dashboard {name!r}; available: {', '.join(self.pages.titles)}")
        return name
