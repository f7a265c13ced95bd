"""Sends an engine a request of one token while nothing else proves that it works: `--probe`."""

import asyncio
import logging
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from http import HTTPStatus

import aiohttp

from exporters.engines.bearer_token import EngineToken
from exporters.engines.condition.evidence import Requests
from exporters.engines.condition.rule import Condition, State
from exporters.engines.scrape_targets import Target
from exporters.engines.state import EngineState
from exporters.exposition.accumulators import Labels
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal

INTERVAL_SECONDS = 15.0
"""The least time between two probes, and without progress before one."""

FRESH_SECONDS = 2.0
"""The maximum age of the scrape that shows that the engine is not paused."""

TIMEOUT_SECONDS = 600.0
"""A time longer than any stall that is not yet a wedge: until then, the probe is a request that waits."""

_LOWEST_PRIORITY = 1_000_000
"""Priority of a probe, if the engine schedules by priority: lower values are served first."""

logger = logging.getLogger("vllm_slo.engines")


class Result(StrEnum):
    """What became of a probe."""

    OK = "ok"
    FAILED = "failed"
    """Status 5xx, or the connection failed."""
    REJECTED = "rejected"
    """Another status: no further probe is sent to this process."""
    TIMEOUT = "timeout"


class Prober:
    """The probes of one engine, and the evidence that they add; times are monotonic seconds."""

    def __init__(self, target: Target, tls: ssl.SSLContext, token: EngineToken | None) -> None:
        self.name = target.name
        self._url = f"{target.base_url}/v1/completions"
        self._tls = tls
        self._token = token
        self._results = Counter[Result]()
        self._sent_at = 0.0
        self._model: str | None = None
        self._answered: dict[str, None] = {}
        self._output_at: float | None = None
        self._priority = _LOWEST_PRIORITY
        self._rejected_by: float | None = None
        self._task: asyncio.Task[None] | None = None

    def add_to(self, requests: Requests) -> Requests:
        """The requests of the relays, with an open probe and the output of earlier ones."""
        waits = self._task is not None and self._model is not None
        outputs = [each for each in (requests.output_at, self._output_at) if each is not None]
        return replace(
            requests,
            probing=waits,
            models=requests.models | {self._model} if waits and self._model else requests.models,
            output_at=max(outputs, default=None),
            output_models=requests.output_models | self._answered.keys(),
            failed=requests.failed + self._results[Result.FAILED],
        )

    def is_due(self, condition: Condition, engine: EngineState, now: float) -> bool:
        """Whether nothing has proved for a while that the engine works, and it is neither down nor paused."""
        if self._task is not None or not engine.up or condition.answered_at is None or condition.state is State.PAUSED:
            return False
        if self._rejected_by == condition.process_since:
            return False
        proved_at = max(condition.worked_at or condition.process_since, self._sent_at)
        return now - proved_at >= INTERVAL_SECONDS and self._model_of(engine) is not None

    def send(self, condition: Condition, engine: EngineState, now: float) -> None:
        """Send a probe; its result is evidence of a later second."""
        self._sent_at, self._model = now, self._model_of(engine)
        self._task = asyncio.get_running_loop().create_task(self._probe(condition.process_since))

    def close(self) -> None:
        """End an open probe."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def samples(self, _now: float) -> Iterator[tuple[Signal, Labels, float]]:
        for result in Result:
            yield signals.ENGINE_PROBES, (result,), float(self._results[result])

    @staticmethod
    def _model_of(engine: EngineState) -> str | None:
        """A model of the engine itself, as a gateway in front may have other names, and no adapter."""
        own = engine.watch.settings.get("served_model_name", "").partition(",")[0]
        return own or next(iter(engine.models), None)

    async def _probe(self, process: float) -> None:
        try:
            status = await self._request()
            if status == HTTPStatus.BAD_REQUEST and self._priority:
                self._priority = 0  # an engine that does not schedule by priority may refuse it
                status = await self._request()
            self._results[self._judge(status, process)] += 1
        except TimeoutError:
            self._results[Result.TIMEOUT] += 1
        except (aiohttp.ClientError, OSError):
            self._results[Result.FAILED] += 1
        finally:
            self._task = None

    def _judge(self, status: int, process: float) -> Result:
        if status == HTTPStatus.OK and self._model is not None:
            self._output_at, self._answered[self._model] = time.monotonic(), None
            return Result.OK
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Result.FAILED
        self._rejected_by = process
        logger.warning("engine %s answered a probe with status %d; it gets no further one", self.name, status)
        return Result.REJECTED

    async def _request(self) -> int:
        """The status of the response, after its end."""
        body = {"model": self._model, "prompt": "1", "max_tokens": 1, "temperature": 0, "priority": self._priority}
        headers = {} if self._token is None else self._token.headers(self._url)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        connector = aiohttp.TCPConnector(ssl=self._tls)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.post(self._url, json=body, headers=headers) as response,
        ):
            await response.read()
            return response.status
