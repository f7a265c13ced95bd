"""Connection settings of the collector, for the sidecar's own spans and for the forwarded ones of the engine."""

import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from exporters.configuration.collector_tls import CollectorTls
from exporters.configuration.otlp_endpoints import Collector
from exporters.sidecar.tracing.span_exporter import exporter, span_queue
from exporters.sidecar.tracing.span_forwarder import sender
from exporters.text import pem_file
from exporters.text.pem_file import PemFile
from tests.exporters.configuration.certificates import Authority, authority, needs_openssl
from tests.support.engine_span_messages import loading, sent
from tests.support.otlp_collectors import ReceivedSpans, grpc_collector, grpc_receiver, http_collector
from tests.support.sample_records import finished
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_batches")

IDS = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}

Receiver = Callable[[], AbstractAsyncContextManager[ReceivedSpans]]
BOTH = pytest.mark.parametrize(
    "receiver", [pytest.param(grpc_collector, id="gRPC"), pytest.param(http_collector, id="HTTP/protobuf")]
)


def address(received: ReceivedSpans) -> str:
    return received.url if received.url.startswith("grpc") else f"{received.url}/v1/traces"


async def send_both(received: ReceivedSpans, collector: Collector) -> None:
    """Send a span of the sidecar and one of the engine."""
    queue = span_queue(collector, "http://127.0.0.1:1", forward=True)
    assert queue.add(finished(**IDS))
    queue.forward(sent(loading()), 1)
    try:
        await until(lambda: len(received.requests) == 2)
    finally:
        queue.close()


@BOTH
@pytest.mark.parametrize("compressed", [True, False])
async def test_messages_are_compressed_on_demand(receiver: Receiver, compressed: bool) -> None:
    async with receiver() as received:
        await send_both(received, Collector(url=address(received), gzip=compressed))
    assert len(received.spans) == 2
    encodings = {headers.get("content-encoding", headers.get("grpc-encoding")) for headers in received.headers}
    if received.url.startswith("http"):  # grpc-encoding is not visible to a gRPC servicer
        assert encodings == ({"gzip"} if compressed else {None})


async def test_the_timeout_is_the_deadline_of_grpc_messages() -> None:
    async with grpc_collector() as received:
        await send_both(received, Collector(url=received.url, timeout=300.0))
    # gRPC may round the timeout in the message up to whole seconds.
    assert all(left is not None and 3 < left <= 301 for left in received.deadlines)
    assert len(received.deadlines) == 2


def test_the_timeout_is_used_for_http_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def record(*_: Any, timeout: float, **__: Any) -> Any:
        timeouts.append(timeout)
        raise OSError("not sent")

    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter", record)
    monkeypatch.setattr(urllib.request, "urlopen", record)
    collector = Collector(url="http://127.0.0.1:1/v1/traces", timeout=12.5)
    for deliver in (lambda: exporter(collector), lambda: sender(collector)(b"")):
        with pytest.raises(Exception, match="not sent"):
            deliver()
    assert timeouts == [12.5, 12.5]


@asynccontextmanager
async def mutual_tls_http(signer: Authority) -> AsyncIterator[ReceivedSpans]:
    server = signer.issue("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=signer.ca)
    context.load_cert_chain(server.cert, server.key)
    context.verify_mode = ssl.CERT_REQUIRED
    async with http_collector(tls=context) as received:
        yield received


def server_credentials(signer: Authority) -> grpc.ServerCredentials:
    server = signer.issue("server")
    pair = Path(server.key).read_bytes(), Path(server.cert).read_bytes()
    return grpc.ssl_server_credentials([pair], Path(signer.ca).read_bytes(), require_client_auth=True)


def read_and_delete(path: str) -> PemFile:
    """An exporter that restarts does not read the file again."""
    file = pem_file.read(path, "")
    Path(path).unlink()
    return file


@asynccontextmanager
async def mutual_tls_grpc(signer: Authority) -> AsyncIterator[ReceivedSpans]:
    with grpc_receiver(tls=server_credentials(signer)) as received:
        yield received


@needs_openssl
@pytest.mark.parametrize(
    "receiver", [pytest.param(mutual_tls_grpc, id="gRPC"), pytest.param(mutual_tls_http, id="HTTP/protobuf")]
)
async def test_a_collector_with_its_own_authority_may_require_a_client_certificate(
    receiver: Callable[[Authority], AbstractAsyncContextManager[ReceivedSpans]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", ssl.get_default_verify_paths().openssl_cafile)  # of another authority
    signer = authority(tmp_path / "ca")
    ours = signer.issue("ours")
    async with receiver(signer) as received:
        ca, certificate, key = (read_and_delete(path) for path in (signer.ca, ours.cert, ours.key))
        tls = CollectorTls(ca=ca, certificate=certificate, key=key)
        await send_both(received, Collector(url=address(received), tls=tls))
    assert len(received.spans) == 2
