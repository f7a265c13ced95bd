"""Declared config changes: the admin endpoints, and the commands that call them; `test_rollout.py` drains."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from compose.cli import main
from exporters.engines.group import EngineGroup
from exporters.sidecar.drain_control import Drain
from exporters.sidecar.http_api import admin as admin_module
from exporters.sidecar.http_api.http_server import application
from tests.support.fake_engine import CACHING_ON, Engine, serving, with_start_time
from tests.support.sidecar_process import Running, run_command, sidecar
from tests.support.waiting import HANG, until

TOKEN = "t0ken-of-the-admin"  # noqa: S105 - of a test
REFUSED = "vllm-slo: this endpoint needs 'Authorization: Bearer ...' with the token of --admin-token-file\n"
ADMIN = {"authorization": f"Bearer {TOKEN}"}
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serving(Engine(fingerprint="vllm-f-1")) as engine:
        yield engine


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def listed_changes(running: Running) -> dict[str, Any]:
    status, text = await running.fetch("/admin/flips", headers=ADMIN)
    assert status == 200
    body: dict[str, Any] = json.loads(text)
    return body


async def flip(running: Running, token: Path, *words: str) -> tuple[int | None, str, str]:
    return await run_command("--sidecar", running.pages, "--admin-token-file", str(token), *words, subcommand="flip")


@pytest.mark.slow
async def test_a_declared_change_is_exposed_listed_and_kept_across_restarts(
    tmp_path: Path, engine: Engine, token: Path
) -> None:
    words = ("--admin-token-file", str(token), "--state", str(tmp_path / "state.json"))
    name = f"127.0.0.1:{engine.port}"
    before = time.time()
    async with sidecar(tmp_path, engine.url, *words) as running:
        await running.shows(f"llm_engine_up{{{name}}}", 1.0)
        assert await running.ask("before") == 200
        await running.shows(f"llm_engine_setting_info{{{name},system_fingerprint,vllm-f-1}}", 1.0)
        revision = (await listed_changes(running))["engines"][name]["revision"]
        done = await flip(
            running, token, "--set", "scheduling_policy=priority", "--set", "block_size=64", "--note", "for the night"
        )
        says = f"{name}: block_size=64: pending; the engine still reports another value\n"
        assert done == (0, f"{name}: scheduling_policy=priority: changed\n{says}", "")
        samples = await running.samples()
        at = samples[f"llm_engine_config_change_timestamp_seconds{{{name},priority,unknown,scheduling_policy}}"]
        assert before <= at <= time.time()
        assert samples[f"llm_engine_setting_info{{{name},scheduling_policy,priority}}"] == 1.0
        listed = await listed_changes(running)
        assert listed["flips"] == [
            {
                "engine": name,
                "setting": "scheduling_policy",
                "old": "unknown",
                "new": "priority",
                "at": at,
                "note": "for the night",
            }
        ]
        assert listed["engines"][name]["declared"] == {"scheduling_policy": "priority"}
        assert listed["engines"][name]["awaited"] == {"block_size": {"value": "64", "note": "for the night"}}
        assert listed["engines"][name]["revision"] != revision
        assert await running.stop() == 0
    started = time.time()
    engine.metrics = with_start_time(CACHING_ON, started).replace('block_size="32"', 'block_size="64"')
    async with sidecar(tmp_path, engine.url, *words) as running:
        await running.shows(f"llm_engine_config_change_timestamp_seconds{{{name},64,32,block_size}}", started)
        by_setting = {each["setting"]: each for each in (await listed_changes(running))["flips"]}
        assert by_setting["block_size"]["note"] == "for the night"
        assert by_setting["scheduling_policy"]["at"] == at


async def config_revisions(running: Running) -> set[str]:
    """One from the start on, although the fingerprint of the engine, which the first response has, is part of it."""
    return {name for name in await running.samples() if name.startswith("llm_engine_config_info{")}


@pytest.mark.slow
async def test_a_changed_fingerprint_of_responses_is_a_config_change(
    tmp_path: Path, engine: Engine, token: Path
) -> None:
    name = f"127.0.0.1:{engine.port}"
    async with sidecar(tmp_path, engine.url, "--admin-token-file", str(token)) as running:
        await running.shows(f"llm_engine_up{{{name}}}", 1.0)
        configs = await config_revisions(running)
        assert await running.ask("before") == 200
        await running.shows(f"llm_engine_setting_info{{{name},system_fingerprint,vllm-f-1}}", 1.0)
        await running.logs("before")
        configs |= await config_revisions(running)
        assert configs == {f"llm_engine_config_info{{{name},{running.lines()[0]['config_revision']}}}"}
        started = time.time()
        engine.metrics, engine.fingerprint = with_start_time(CACHING_ON, started), "vllm-f-2"
        await running.shows(f"llm_engine_start_time_seconds{{{name}}}", started)
        assert await running.ask("after") == 200
        change = f"llm_engine_config_change_timestamp_seconds{{{name},vllm-f-2,vllm-f-1,system_fingerprint}}"
        await running.shows(change, started)
        await running.logs("before", "after")
        revisions = [line["config_revision"] for line in running.lines()]
        assert revisions[0] != revisions[1] == (await listed_changes(running))["engines"][name]["revision"]
        done = await flip(running, token, "--engine", name, "--set", "max_num_seqs=8")
        assert done == (0, f"{name}: max_num_seqs=8: changed\n", "")
        changes = [key for key in await running.samples() if key.startswith("llm_engine_config_change")]
        assert changes == [f"llm_engine_config_change_timestamp_seconds{{{name},8,unknown,max_num_seqs}}"]


@pytest.mark.slow
async def test_the_admin_token_is_valid_for_the_admin_endpoints_only(
    tmp_path: Path, engine: Engine, token: Path
) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("bearer of-the-metrics\n")
    credentials.chmod(0o600)
    metrics = {"authorization": "Bearer of-the-metrics"}
    words = ("--admin-token-file", str(token), "--metrics-auth-file", str(credentials))
    async with sidecar(tmp_path, engine.url, *words) as running:
        for headers in ({}, metrics, {"authorization": f"Basic {TOKEN}"}, {"authorization": f"Bearer {TOKEN}x"}):
            for method, page in (("GET", "/admin/flips"), ("POST", "/admin/flip"), ("GET", "/admin/nowhere")):
                assert await running.fetch(page, method, headers) == (401, REFUSED)
        assert (await running.fetch("/admin/flips", headers=ADMIN))[0] == 200
        assert (await running.fetch("/admin/flip", headers=ADMIN))[0] == 405
        assert (await running.fetch("/admin/nowhere", headers=ADMIN))[0] == 404
        assert (await running.fetch("/metrics", headers=ADMIN))[0] == 401
        assert (await running.fetch("/metrics", headers=metrics))[0] == 200
        write(token, "two words\n")
        running.process.send_signal(signal.SIGHUP)
        refusal = AT_ADMIN.replace("TOKEN", str(token))
        await running.logs_line(f"ERROR exporter: {refusal}; ignoring this file")
        assert (await running.fetch("/admin/flips", headers=ADMIN))[0] == 200
        write(token, "renewed\n")
        running.process.send_signal(signal.SIGHUP)

        async def renewed() -> bool:
            return (await running.fetch("/admin/flips", headers={"authorization": "Bearer renewed"}))[0] == 200

        await until(renewed)
        assert await running.fetch("/admin/flips", headers=ADMIN) == (401, REFUSED)
        assert TOKEN not in running.stderr.read_text()


EMPTY = "is empty; declare at least one setting, such as scheduling_policy=priority"
ORIGIN = "write http://host:port or https://host:port"
NAMES = "is not a valid name; write 1 to 100 letters, digits and _.:-, no digit first"
VALUES = "a value is 1 to 200 printable characters"
LONG_NOTE = "--note: has 1001 characters; the limit is 1000"
SHAPE = '; write {"set": {"NAME": "VALUE"}, "note": "TEXT"}'


@pytest.mark.slow
async def test_an_invalid_declaration_is_rejected_with_all_mistakes_and_changes_nothing(
    tmp_path: Path, engine: Engine, token: Path
) -> None:
    name = f"127.0.0.1:{engine.port}"
    bodies: list[tuple[str, list[str]]] = [
        ("{", ["Input data was truncated" + SHAPE]),
        ("[" * 10_000, ["Expected `object`, got `array`" + SHAPE]),
        ('{"set": {"a": true}}', ["Expected `str`, got `bool` - at `$.set[...]`" + SHAPE]),
        ('{"set": {"a": "b"}, "at": 5}', ["Object contains unknown field `at`" + SHAPE]),
        (
            json.dumps(
                {"set": {"9 lives": "x", "a": "", "b": "x" * 201, "c": "\n"}, "note": "n" * 1001, "engine": "e"}
            ),
            [
                f"set: '9 lives' {NAMES}",
                *(f"set: {setting}: {VALUES}" for setting in "abc"),
                LONG_NOTE.removeprefix("--"),
                f"engine: 'e' is not known; known: {name}",
            ],
        ),
        ('{"set": {}}', [f"set: {EMPTY}"]),
        (
            json.dumps({"set": {f"s{n}": "x" for n in range(101)}}),
            [f"set: {name} would have more than 100 declared settings"],
        ),
    ]
    async with sidecar(tmp_path, engine.url, "--admin-token-file", str(token)) as running:
        for body, found in bodies:
            status, text = await running.fetch("/admin/flip", "POST", ADMIN, body)
            assert (status, json.loads(text)) == (400, {"errors": found})
        status, text = await running.fetch("/admin/flip", "POST", ADMIN, " " * 70_000)
        assert (status, json.loads(text)) == (413, {"errors": ["the body has 70000 bytes; the limit is 65536"]})
        assert (await listed_changes(running))["flips"] == []
        assert await flip(running, token, "--set", "a=b", "--engine", "elsewhere:8000") == (
            2,
            "",
            f"vllm-slo: --engine: 'elsewhere:8000' is not known; known: {name}\n",
        )


AT_ADMIN = "--admin-token-file: TOKEN: a token is one word of printable ASCII; generate one with: openssl rand -hex 32"


@pytest.mark.parametrize(
    "content, message",
    [
        pytest.param(None, "FLAG: TOKEN cannot be read: no such file or directory", id="a missing file"),
        pytest.param(b"\xff", "FLAG: TOKEN is not UTF-8 text", id="not UTF-8"),
        *(
            pytest.param(content, AT_ADMIN.replace("--admin-token-file", "FLAG"), id=name)
            for name, content in {
                "empty": b"\n",
                "two words": b"bearer s3cret",
                "not ASCII": "schlüssel".encode(),
            }.items()
        ),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("sidecar", "--upstream", "http://127.0.0.1:1", "--admin-token-file"), id="sidecar"),
        pytest.param(("flip", "--set", "a=b", "--admin-token-file"), id="flip"),
        pytest.param(("drain", "--admin-token-file"), id="drain"),
    ],
)
def test_an_invalid_token_file_is_rejected(
    token: Path, capsys: Capture, words: tuple[str, ...], content: bytes | None, message: str
) -> None:
    if content is None:
        token.unlink()
    else:
        token.write_bytes(content)
    assert main([*words, str(token)]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message.replace('FLAG', words[-1]).replace('TOKEN', str(token))}\n"


FLIP, DRAIN = ("flip", "--set", "a=b"), ("drain",)
BOTH = pytest.mark.parametrize("command", [pytest.param(FLIP, id="flip"), pytest.param(DRAIN, id="drain")])


@pytest.mark.parametrize(
    "words, message",
    [
        (("flip",), f"--set: {EMPTY}"),
        (("flip", "--set", "policy"), "--set: 'policy' has no value; write NAME=VALUE"),
        (("flip", "--set", "a=1", "--set", "a=2"), "--set: a has two values, '1' and '2'; remove one of them"),
        (
            ("flip", "--set", "9=x", "--set", "a=", "--note", "n" * 1001),
            f"--set: '9' {NAMES}\n--set: a: {VALUES}\n{LONG_NOTE}",
        ),
        (
            ("drain", "--timeout", "0s"),
            "--timeout: '0s' is not a valid duration; write a number with a unit, such as 250ms, 30s or 10m",
        ),
    ],
)
def test_invalid_flags_are_rejected(token: Path, capsys: Capture, words: tuple[str, ...], message: str) -> None:
    assert main([*words, "--admin-token-file", str(token)]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"


@BOTH
@pytest.mark.parametrize(
    "url, status, message",
    [
        ("h:9464", 2, f"'h:9464' is not a valid URL; {ORIGIN}"),
        (
            "http://h:x",
            2,
            f"'http://h:x' is not a valid URL: Port could not be cast to integer value as 'x'; {ORIGIN}",
        ),
        ("http://h:1/x", 2, "'http://h:1/x' has a path; remove '/x'"),
        ("http://127.0.0.1:1", 3, "http://127.0.0.1:1: request failed: [Errno 111] Connection refused"),
    ],
)
def test_a_sidecar_that_cannot_be_reached_is_reported(
    token: Path, capsys: Capture, command: tuple[str, ...], url: str, status: int, message: str
) -> None:
    assert main([*command, "--admin-token-file", str(token), "--sidecar", url]) == status
    assert capsys.readouterr().err == f"vllm-slo: --sidecar: {message}\n"


async def run_against(response: web.Response, command: tuple[str, ...], token: Path) -> tuple[int, str]:
    """The exit status of a command whose request gets this response, and the URL of the server."""

    async def page(_: web.Request) -> web.Response:
        return response

    app = web.Application()
    app.add_routes([web.post(f"/admin/{command[0]}", page)])
    async with TestServer(app) as server:
        url = f"http://127.0.0.1:{server.port}"
        words = [*command, "--admin-token-file", str(token), "--sidecar", url]
        return await asyncio.to_thread(main, words), url


@BOTH
@pytest.mark.parametrize(
    "status, text, message",
    [
        pytest.param(
            200, "<html>it works", "is not a sidecar: it responded 200 with '<html>it works'", id="a web server"
        ),
        pytest.param(
            302, "", "is not a sidecar: it responded 302 with ''", id="a redirect, which must not get the token"
        ),
        pytest.param(502, "{}", "is not a sidecar: it responded 502 with '{}'", id="a gateway"),
        pytest.param(200, "{}", "is not a sidecar: it responded 200 with '{}'", id="another program"),
        pytest.param(
            404, "", "has no /admin/COMMAND; start the sidecar with --admin-token-file FILE", id="no admin endpoints"
        ),
        pytest.param(401, "", "", id="another token"),
    ],
)
async def test_a_response_of_another_server_is_reported(
    token: Path, capsys: Capture, command: tuple[str, ...], status: int, text: str, message: str
) -> None:
    headers = {"location": "http://127.0.0.1:1/"} if status == 302 else None
    code, url = await run_against(web.Response(status=status, text=text, headers=headers), command, token)
    expected = f"--sidecar: {url} {message.replace('COMMAND', command[0])}"
    if status == 401:
        expected = "--admin-token-file: the sidecar rejected the token; use the file of its --admin-token-file"
    assert (code, capsys.readouterr().err) == (2, f"vllm-slo: {expected}\n")


async def test_an_engine_that_did_not_serve_is_named(token: Path, capsys: Capture) -> None:
    wedged = "gpu-0:8000 is wedged for 95 s: requests wait for it, and nothing moves for 123 s"
    drained = web.json_response({"seconds": 20.0, "cut_requests": 3, "engines": [wedged]})
    assert (await run_against(drained, DRAIN, token))[0] == 0
    assert capsys.readouterr().out == f"drained in 20 s; open requests that were cut: 3\nengine {wedged}\n"


async def test_a_declaration_that_does_not_arrive_in_time_is_rejected(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "BODY_SECONDS", 0.05)
    admin = admin_module.Admin(cast("EngineGroup", None), Drain(), lambda: 0, str(token))
    admin.read()
    async with TestServer(application(list, lambda: None, admin=admin)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST /admin/flip HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 9\r\n\r\n"
        writer.write(head.encode() + b'{"set')
        async with asyncio.timeout(HANG):
            response = await reader.readuntil(b"]}\n")
        writer.transport.abort()
    assert response.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert response.endswith(b'{"errors":["the body was not complete within 0.05 s"]}\n')
