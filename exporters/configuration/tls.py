"""TLS: the server certificate of the relay, and the authorities for the certificate of the engine."""

import re
import ssl
from pathlib import Path

import msgspec

from exporters.errors import UsageError, system_reason

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")
_CODES = re.compile(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$")
_PROTOCOLS = ["http/1.1"]
_KEY_MISMATCH = {
    "KEY_VALUES_MISMATCH",
    "KEY_TYPE_MISMATCH",
    "NO_CERTIFICATE_ASSIGNED",
}  # the last one: an EC key for an RSA certificate


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the server certificate (with its chain) and of its key."""

    cert: str
    key: str

    def check(self) -> float:
        """Check the files; returns the certificate's expiry in unix seconds.

        Raises:
            UsageError: a file cannot be read, or certificate and key do not match.
        """
        pem = _CERTIFICATE.search(_read(self.cert, "--tls-cert"))
        if pem is None:
            raise UsageError(f"--tls-cert: {self.cert} contains no PEM certificate (-----BEGIN CERTIFICATE-----)")
        if not _KEY.search(_read(self.key, "--tls-key")):
            raise UsageError(f"--tls-key: {self.key} contains no PEM private key (-----BEGIN PRIVATE KEY-----)")
        self._load_into(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        return self._expiry(pem[0])

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(_PROTOCOLS)
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> float:
        """Use the certificate for new handshakes; returns its expiry. If it is invalid, `context` is not changed."""
        # Check it on another context first: OpenSSL drops the old key when it loads a certificate for another one.
        expiry = self.check()
        self._load_into(context)
        return expiry

    def _expiry(self, pem: bytes) -> float:
        from cryptography import x509  # noqa: PLC0415 - 10 MB of memory that only TLS for clients needs

        try:
            return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
        except (ValueError, x509.InvalidVersion) as error:
            raise UsageError(f"--tls-cert: {self.cert} contains an invalid certificate: {error}") from error

    def _load_into(self, context: ssl.SSLContext) -> None:
        def no_passphrase() -> str:  # else OpenSSL prompts on the terminal
            raise UsageError(f"--tls-key: {self.key} has a passphrase; remove it with: openssl pkey -in {self.key}")

        try:
            context.load_cert_chain(self.cert, self.key, no_passphrase)
        except ssl.SSLError as error:
            if error.reason in _KEY_MISMATCH:
                raise UsageError(f"--tls-key: {self.key} does not match the certificate in {self.cert}") from error
            why = tls_reason(error) if error.reason else "one of the files is corrupt"
            raise UsageError(f"--tls-cert: {self.cert} with {self.key} cannot be used: {why}") from error


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine's certificate is verified: with the system's authorities, with those of a file, or not at all."""

    ca: str | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """The context for connections to the engine.

        Raises:
            UsageError: the file of authorities cannot be used.
        """
        authorities = None
        if self.ca is not None:
            authorities = b"\n".join(_CERTIFICATE.findall(_read(self.ca, "--upstream-ca"))).decode("ascii", "replace")
            if not authorities:
                raise UsageError(f"--upstream-ca: {self.ca} contains no PEM certificate (-----BEGIN CERTIFICATE-----)")
        try:
            context = ssl.create_default_context(cadata=authorities)
        except ssl.SSLError as error:
            raise UsageError(f"--upstream-ca: {self.ca} cannot be used: a certificate in it is corrupt") from error
        context.set_alpn_protocols(_PROTOCOLS)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


SYSTEM = Trust()


def tls_reason(error: ssl.SSLError) -> str:
    """The reason of a TLS error, without OpenSSL's codes and source lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    return _CODES.sub("", str(error)).lower()


def _read(path: str, flag: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read: {system_reason(error)}") from error
