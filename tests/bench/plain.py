"""A minimal streaming proxy with aiohttp on both sides and without metering, for comparison."""

import asyncio
import contextlib
import sys

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web


async def serve(port: int, upstream_port: int) -> None:
    session = ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None))

    async def forward(request: web.Request) -> web.StreamResponse:
        url = f"http://127.0.0.1:{upstream_port}{request.path_qs}"
        async with session.request(request.method, url, data=await request.read()) as upstream:
            response = web.StreamResponse(
                status=upstream.status, headers={"content-type": upstream.headers["content-type"]}
            )
            response.content_length = upstream.content_length
            await response.prepare(request)
            # The client may have disconnected.
            with contextlib.suppress(ConnectionError):
                async for data in upstream.content.iter_any():
                    await response.write(data)
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
