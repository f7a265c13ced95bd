"""TLS of the connection to the collector: its authorities, and the certificate of the sidecar."""

import ssl
from pathlib import Path

import msgspec


class CollectorTls(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files; None: the system's authorities, and no certificate of the sidecar."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context

    def contents(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Authorities, key and certificate, in the order in which gRPC takes them."""
        ca, key, certificate = (
            None if path is None else Path(path).read_bytes() for path in (self.ca, self.key, self.certificate)
        )
        return ca, key, certificate
