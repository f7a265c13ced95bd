"""Runs a real nginx that writes the documented access log, in front of the engine of a test."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.sidecar_process import ROOT
from tests.support.waiting import until

FORMAT = ROOT / "compose" / "nginx" / "vllm-slo-log.conf"
CONFIG = """
{user}worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/error.log; daemon off;
events {{ worker_connections 256; }}
http {{
  include {format};
  access_log {folder}/access.log vllm_slo;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    proxy_http_version 1.1;
    proxy_buffering off;
    proxy_read_timeout 1s;
    location / {{ proxy_pass http://127.0.0.1:{upstream}; }}
    location = /v1/completions {{ proxy_pass http://127.0.0.1:{closed}; }}
    location = /v1/embeddings {{ return 503; }}
    location = /tokenize {{ proxy_pass http://127.0.0.1:{silent}; }}
  }}
}}
"""


@contextlib.asynccontextmanager
async def nginx(folder: Path, upstream: int) -> AsyncIterator[tuple[str, int]]:
    """The URL and the process id of an nginx with `access.log`.

    `/v1/completions` has an engine that is down, `/tokenize` one that does not respond, `/v1/embeddings` none.
    """
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    silent = await asyncio.start_server(_say_nothing, "127.0.0.1", 0)
    config = folder / "nginx.conf"
    text = CONFIG.format(
        folder=folder,
        format=FORMAT,
        port=port,
        upstream=upstream,
        closed=free_port(),
        silent=silent.sockets[0].getsockname()[1],
        user="" if os.geteuid() else "user root;\n",  # else its workers may not enter the folder of the test
    )
    config.write_text(text, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(program, "-e", str(folder / "error.log"), "-c", str(config))
    try:
        await until(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        await process.wait()
        silent.close()


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
