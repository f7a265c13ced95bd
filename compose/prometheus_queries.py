"""Asks the lab's Prometheus, without ever stopping the event loop."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an instant query."""

    labels: Mapping[str, str]
    value: float


class QueryError(Exception):
    """Prometheus did not answer, or refused the query."""


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """A server by its base URL."""

    http: aiohttp.ClientSession
    url: str

    async def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """An instant query, now or at `at` (unix seconds).

        Raises:
            QueryError: there is no answer, or it is an error.
        """
        asked = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        data = await self._data("/api/v1/query", asked)
        return [Sample(one["metric"], float(one["value"][1])) for one in data["result"]]

    async def by_class(self, expression: str, at: float | None = None) -> dict[str, float]:
        """One value a class; a series without the label is left out."""
        return {one.labels["class"]: one.value for one in await self.query(expression, at) if "class" in one.labels}

    async def alerts(self) -> list[tuple[str, Mapping[str, str]]]:
        """State (`pending`, `firing`) and labels of each active alert.

        Raises:
            QueryError: there is no answer, or it is an error.
        """
        data = await self._data("/api/v1/alerts", {})
        return [(one["state"], one["labels"]) for one in data["alerts"]]

    async def _data(self, path: str, parameters: Mapping[str, str]) -> Any:
        try:
            async with self.http.get(
                self.url + path, params=parameters, timeout=aiohttp.ClientTimeout(total=5)
            ) as response:
                answer = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise QueryError(f"{self.url}: {str(error) or 'no answer'}") from error
        if answer.get("status") != "success":
            raise QueryError(f"{parameters.get('query', path)}: {answer.get('error', 'refused')}")
        return answer["data"]
