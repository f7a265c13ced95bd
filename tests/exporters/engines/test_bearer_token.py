"""An engine that requires a token: `--engine-token-file`, and what is exposed and logged without access."""

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from exporters.engines.bearer_token import EngineToken
from exporters.engines.scrape_targets import targets
from exporters.engines.scraper import Scraper
from tests.exporters.engines.scraping import TLS
from tests.support.command_line import CommandLine
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import sidecar

KEY = "s3cret-api-key"
ADVICE = "it requires a token; set --engine-token-file"
REJECTED = "it rejects the token of --engine-token-file; write a valid one and send SIGHUP"
COUNT_AS_OTHER = "Until then, models that --model does not name count as `other`"


@dataclass
class GuardedEngine(Engine):
    """Requires a token for its models, as vLLM does with --api-key, and with `guards_metrics` for its metrics."""

    key: str = KEY
    status: int = 401
    guards_metrics: bool = False
    authorizations: list[str | None] = field(default_factory=list)
    """Of each request for the models or the metrics."""
    moved_to: str | None = None
    """Redirects requests for the models."""

    def _denial(self, request: web.Request) -> web.Response | None:
        self.authorizations.append(request.headers.get("authorization"))
        if self.authorizations[-1] == f"Bearer {self.key}":
            return None
        return web.json_response({"error": "Unauthorized"}, status=self.status)

    async def models_page(self, request: web.Request) -> web.Response:
        if self.moved_to is not None:
            raise web.HTTPTemporaryRedirect(self.moved_to)
        return self._denial(request) or await super().models_page(request)

    async def metrics_page(self, request: web.Request) -> web.Response:
        return (self.guards_metrics and self._denial(request)) or await super().metrics_page(request)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "engine.token"
    write(path, f"{KEY}\n")
    return path


@pytest.fixture
def token(path: Path) -> EngineToken:
    token = EngineToken(str(path))
    token.read()
    return token


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporters.engines.scraper.RETRY_SECONDS", 0.0)


def write(path: Path, text: str, *, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def scraper_of(engine: Engine, token: EngineToken | None, metrics: Sequence[str] = ()) -> Scraper:
    (target,) = targets(engine.url, metrics)
    return Scraper(target, 1.0, lambda _: None, TLS, token=token)


async def scraped(
    engine: Engine, session: aiohttp.ClientSession, token: EngineToken | None
) -> tuple[bool, tuple[str, ...], dict[str, int]]:
    """After two scrapes: whether the engine is up, its models, and the errors."""
    async with serving(engine):
        scraper = scraper_of(engine, token)
        await scraper.scrape(session)
        await scraper.scrape(session)
    return (
        scraper.state.up,
        scraper.state.models,
        {name: count for name, count in scraper.state.errors.items() if count},
    )


async def test_the_models_and_metrics_of_an_engine_with_a_key_are_read_with_the_token(
    session: aiohttp.ClientSession, token: EngineToken
) -> None:
    assert await scraped(GuardedEngine(guards_metrics=True), session, token) == (True, ("tiny",), {})


@pytest.mark.parametrize("status", [401, 403])
async def test_models_that_may_not_be_read_are_counted_and_logged_once(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    engine = GuardedEngine(status=status)
    assert await scraped(engine, session, None) == (True, (), {"models_unauthorized": 2})
    assert caplog.messages == [f"{engine.url}/v1/models returned status {status}: {ADVICE}. {COUNT_AS_OTHER}"]


@pytest.mark.parametrize("status", [401, 403])
async def test_metrics_that_may_not_be_read_are_a_failed_scrape_logged_once(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, token: EngineToken, status: int
) -> None:
    engine = GuardedEngine(key="another", status=status, guards_metrics=True)
    assert await scraped(engine, session, token) == (False, (), {"unauthorized": 2, "models_unauthorized": 2})
    assert caplog.messages == [
        f"{engine.url}/metrics returned status {status}: {REJECTED}. Until then, llm_engine_up is 0",
        f"{engine.url}/v1/models returned status {status}: {REJECTED}. {COUNT_AS_OTHER}",
    ]


async def test_a_new_token_is_used_from_the_next_scrape_on_and_the_change_is_logged(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, token: EngineToken, path: Path
) -> None:
    caplog.set_level("INFO")
    async with serving(GuardedEngine(key="renewed", guards_metrics=True)) as engine:
        scraper = scraper_of(engine, token)
        await scraper.scrape(session)
        caplog.clear()
        write(path, "renewed")
        token.read()
        await scraper.scrape(session)
        await scraper.scrape(session)
    assert (scraper.state.up, scraper.state.models) == (True, ("tiny",))
    assert caplog.messages == [
        f"{engine.url}/metrics accepts requests again",
        f"{engine.url}/v1/models accepts requests again",
    ]


async def test_a_redirect_to_another_host_does_not_get_the_token(
    session: aiohttp.ClientSession, token: EngineToken
) -> None:
    engine, elsewhere = GuardedEngine(guards_metrics=True), GuardedEngine()
    async with serving(engine), serving(elsewhere):
        engine.moved_to = f"{elsewhere.url}/v1/models"
        await scraper_of(engine, token).scrape(session)
    assert (engine.authorizations, elsewhere.authorizations) == ([f"Bearer {KEY}"], [None])


async def test_a_url_with_credentials_keeps_them_and_they_are_not_logged(
    session: aiohttp.ClientSession, token: EngineToken, caplog: pytest.LogCaptureFixture
) -> None:
    engine = GuardedEngine(guards_metrics=True)
    async with serving(engine):
        address = engine.url.removeprefix("http://")
        await scraper_of(engine, token, [f"http://me:pass@{address}/metrics?key=k3y"]).scrape(session)
    assert engine.authorizations == ["Basic bWU6cGFzcw==", f"Bearer {KEY}"]
    reason = "it rejects the credentials in its URL"
    assert caplog.messages == [
        f"{engine.url}/metrics returned status 401: {reason}. Until then, llm_engine_up is 0",
    ]


INVALID = "a token is one word of printable ASCII in one line"


@pytest.mark.parametrize(
    "content, message",
    [
        pytest.param(None, "PATH cannot be read: no such file or directory", id="missing"),
        pytest.param(b"", f"PATH: {INVALID}", id="empty"),
        pytest.param(b"one\ntwo\n", f"PATH: {INVALID}", id="two lines"),
        pytest.param(b"Bearer one", f"PATH: {INVALID}", id="two words"),
        pytest.param("schlüssel".encode(), f"PATH: {INVALID}", id="beyond ASCII"),
        pytest.param(b"\xff", "PATH is not UTF-8 text", id="no text"),
    ],
)
def test_an_invalid_token_file_is_rejected(path: Path, cli: CommandLine, content: bytes | None, message: str) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    refused = cli.refusal("sidecar", "--upstream", "http://127.0.0.1:1", "--engine-token-file", path)
    assert refused == f"--engine-token-file: {message.replace('PATH', str(path))}"


@pytest.mark.slow
async def test_sighup_reads_the_token_again_and_it_is_shown_nowhere(tmp_path: Path, path: Path) -> None:
    engine = GuardedEngine(guards_metrics=True)
    write(path, "expired-token", mode=0o604)
    async with serving(engine):
        name = f"127.0.0.1:{engine.port}"
        async with sidecar(tmp_path, engine.url, variables={"VLLM_SLO_ENGINE_TOKEN_FILE": str(path)}) as running:
            denial = f"WARNING exporter: {engine.url}/metrics returned status 401: {REJECTED}. Until then, "
            await running.logs_line(f"{denial}llm_engine_up is 0")
            write(path, "not a token")
            running.process.send_signal(signal.SIGHUP)
            await running.logs_line(
                f"ERROR exporter: --engine-token-file: {path}: {INVALID}; ignoring this file",
            )
            write(path, KEY)
            running.process.send_signal(signal.SIGHUP)
            await running.shows(f"llm_engine_up{{{name}}}", 1)
            await running.shows("llm_requests_total{all,tiny,ok,chat_completions,false,other}", 0)
            assert await running.ask("one") == 200
            await running.shows("llm_requests_total{all,tiny,ok,chat_completions,false,other}", 1)
            await running.logs("one")
            shown = [running.stderr.read_text(), (await running.fetch("/metrics"))[1], json.dumps(running.lines())]
    assert f"--engine-token-file: {path} is readable by all users; run: chmod o-r {path}" in shown[0]
    assert not [text for text in shown if KEY in text or "expired-token" in text]
    assert "authorization" not in engine.heads[0]  # the relay forwards the client's header only
