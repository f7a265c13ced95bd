"""TLS: the server certificate of the relay, and the authorities for the certificate of the engine."""

import re
import ssl

import msgspec

from exporters.configuration.certificate_expiry import expiry
from exporters.text import pem_file
from exporters.text.connect_errors import tls_reason
from exporters.text.errors import UsageError
from exporters.text.pem_file import PemFile

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")
_PROTOCOLS = ["http/1.1"]
_KEY_MISMATCH = {
    "KEY_VALUES_MISMATCH",
    "KEY_TYPE_MISMATCH",
    "NO_CERTIFICATE_ASSIGNED",
}  # the last one: an EC key for an RSA certificate


class LoadedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """The server certificate with its chain, its key, and its expiry in unix seconds."""

    cert: PemFile
    key: PemFile
    expiry: float

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(_PROTOCOLS)
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Use the certificate for new handshakes."""
        _load(self.cert, self.key, context)


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the server certificate (with its chain) and of its key."""

    cert: str
    key: str

    def read(self) -> LoadedCertificate:
        """Read and check the files; raises UsageError if a file cannot be read, or certificate and key do not match."""
        cert = pem_file.read(self.cert, "--tls-cert")
        pem = _CERTIFICATE.search(cert.content)
        if pem is None:
            raise UsageError(f"--tls-cert: {self.cert} contains no PEM certificate (-----BEGIN CERTIFICATE-----)")
        key = pem_file.read(self.key, "--tls-key")
        if not _KEY.search(key.content):
            raise UsageError(f"--tls-key: {self.key} contains no PEM private key (-----BEGIN PRIVATE KEY-----)")
        # A context of its own, because OpenSSL drops the old key when it loads a certificate for another one.
        _load(cert, key, ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        return LoadedCertificate(cert=cert, key=key, expiry=self._expiry(pem[0]))

    def _expiry(self, pem: bytes) -> float:
        try:
            return expiry(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
        except ValueError as error:
            raise UsageError(f"--tls-cert: {self.cert} contains an invalid certificate: {error}") from error


def _load(cert: PemFile, key: PemFile, context: ssl.SSLContext) -> None:
    def no_passphrase() -> str:  # else OpenSSL prompts on the terminal
        raise UsageError(f"--tls-key: {key.path} has a passphrase; remove it with: openssl pkey -in {key.path}")

    try:
        with cert.in_memory() as cert_path, key.in_memory() as key_path:
            context.load_cert_chain(cert_path, key_path, no_passphrase)
    except ssl.SSLError as error:
        if error.reason in _KEY_MISMATCH:
            raise UsageError(f"--tls-key: {key.path} does not match the certificate in {cert.path}") from error
        why = tls_reason(error) if error.reason else "one of the files is corrupt"
        raise UsageError(f"--tls-cert: {cert.path} with {key.path} cannot be used: {why}") from error


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine's certificate is verified: with the system's authorities, with those of a file, or not at all."""

    ca: PemFile | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """The context for connections to the engine; raises UsageError if the authorities cannot be used."""
        authorities = path = None
        if self.ca is not None:
            path = self.ca.path
            authorities = b"\n".join(_CERTIFICATE.findall(self.ca.content)).decode("ascii", "replace")
            if not authorities:
                raise UsageError(f"--upstream-ca: {path} contains no PEM certificate (-----BEGIN CERTIFICATE-----)")
        try:
            context = ssl.create_default_context(cadata=authorities)
        except ssl.SSLError as error:
            raise UsageError(f"--upstream-ca: {path} cannot be used: a certificate in it is corrupt") from error
        context.set_alpn_protocols(_PROTOCOLS)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


SYSTEM = Trust()
