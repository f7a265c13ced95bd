"""Controls a headless Chromium over the DevTools protocol: opens pages and takes screenshots."""

import asyncio
import base64
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from exporters.text.errors import UsageError

BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_START_TIMEOUT = 60.0
_COMMAND_TIMEOUT = 60.0


def find_browser() -> str | None:
    """The browser on PATH."""
    return next(filter(None, map(shutil.which, BROWSER_NAMES)), None)


class BrowserError(Exception):
    """The browser rejected a command, or a script on the page threw an exception."""


class Tab:
    """One page of the browser, and the events that it has sent."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session = ""
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    async def open(self) -> None:
        target = await self.send("Target.createTarget", url="about:blank")
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.send(f"{domain}.enable")

    async def send(self, method: str, **parameters: Any) -> Any:
        """The result of one command.

        Raises:
            BrowserError: the browser rejected it, or did not respond in time.
        """
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters}
        reply = self._pending[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({**command, "sessionId": self._session} if self._session else command))
        try:
            return await asyncio.wait_for(reply, _COMMAND_TIMEOUT)
        except TimeoutError as error:
            raise BrowserError(f"the browser did not respond to {method} within {_COMMAND_TIMEOUT:g} s") from error

    async def evaluate(self, script: str) -> Any:
        """The value of an expression on the page; promises are awaited.

        Raises:
            BrowserError: the expression threw an exception.
        """
        result = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    async def show(self, url: str, width: int = 1440, theme: str = "dark") -> None:
        """Load a page of the preview in a window of this width and wait until it is drawn.

        Raises:
            BrowserError: the page is not drawn in time.
        """
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **metrics)
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        await self.send("Page.navigate", url=url)
        await self.wait_for("document.documentElement?.dataset.drawn")

    async def wait_for(self, condition: str) -> None:
        """Wait until an expression on the page is true; reloads are allowed.

        Raises:
            BrowserError: the expression is not true in time.
        """
        try:
            async with asyncio.timeout(_COMMAND_TIMEOUT):
                while True:
                    # during a navigation the page has no execution context
                    with suppress(BrowserError):
                        if await self.evaluate(condition):
                            return
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise BrowserError(f"not true within {_COMMAND_TIMEOUT:g} s: {condition}") from error

    async def screenshot(self) -> bytes:
        """The whole page as PNG, including the parts outside the window."""
        size = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        screenshot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(screenshot["data"])

    async def read_messages(self) -> None:
        """Resolve pending commands with their responses, until the browser closes."""
        async for frame in self._socket:
            message = json.loads(frame.data)
            if "id" not in message:
                self.events.append((message["method"], message.get("params", {})))
            elif not (reply := self._pending.pop(message["id"])).done():
                if "error" in message:
                    reply.set_exception(BrowserError(message["error"]["message"]))
                else:
                    reply.set_result(message["result"])


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """A tab of a new browser process, which is stopped at the end of the block.

    Raises:
        UsageError: no browser is installed, or it does not start.
    """
    program = find_browser()
    if program is None:
        raise UsageError(f"--png: no browser on PATH; install one of: {', '.join(BROWSER_NAMES)}")
    with tempfile.TemporaryDirectory(prefix="vllm-slo-", ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--disable-gpu"]
        flags += ["--no-first-run", "--disable-background-networking", "--hide-scrollbars", "--mute-audio"]
        if os.geteuid() == 0:
            # Chromium's sandbox does not work as root
            flags.append("--no-sandbox")
        process = await asyncio.create_subprocess_exec(
            program, *flags, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            address = await _address(process)
            async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket)
                reader = asyncio.create_task(tab.read_messages())
                try:
                    await tab.open()
                    yield tab
                finally:
                    reader.cancel()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    """The URL of the DevTools socket, which the browser prints to standard error."""
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    stderr_lines: list[str] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_TIMEOUT):
            async for line in process.stderr:
                stderr_lines.append(line.decode(errors="replace").strip())
                if match := re.search(r"DevTools listening on (ws://\S+)", stderr_lines[-1]):
                    return match[1]
    raise UsageError(f"--png: the browser does not start: {' '.join(stderr_lines[-3:]) or 'no output'}")
