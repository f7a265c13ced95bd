"""TLS of the connection to the collector: its authorities, and the certificate of the sidecar."""

import contextlib
import ssl

import msgspec

from exporters.text.pem_file import PemFile


class CollectorTls(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files; None: the system's authorities, and no certificate of the sidecar."""

    ca: PemFile | None = None
    certificate: PemFile | None = None
    key: PemFile | None = None

    def context(self) -> ssl.SSLContext:
        with contextlib.ExitStack() as files:
            ca, key, certificate = self.paths(files)
            context = ssl.create_default_context(cafile=ca)
            if certificate is not None:
                context.load_cert_chain(certificate, key)
        return context

    def paths(self, files: contextlib.ExitStack) -> tuple[str | None, str | None, str | None]:
        """Paths of authorities, key and certificate until `files` is closed."""
        ca, key, certificate = (
            None if file is None else files.enter_context(file.in_memory())
            for file in (self.ca, self.key, self.certificate)
        )
        return ca, key, certificate

    def contents(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Authorities, key and certificate, in the order in which gRPC takes them."""
        ca, key, certificate = (
            None if file is None else file.content for file in (self.ca, self.key, self.certificate)
        )
        return ca, key, certificate
