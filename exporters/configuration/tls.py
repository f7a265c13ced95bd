"""TLS on both sides: the certificate that clients are shown, and what the engine's is checked against."""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from exporters.errors import UsageError, system_reason

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")
_CODES = re.compile(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$")
_PROTOCOLS = ["http/1.1"]
_OF_ANOTHER = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}  # the last: EC against RSA
_EXPLICIT_VERSION, _UTC_TIME = 0xA0, 0x17


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Files with the certificate (and its chain) that clients are shown, and with its key."""

    cert: str
    key: str

    def check(self) -> float:
        """Unix seconds at which the certificate ends.

        Raises:
            UsageError: a file cannot be read, or certificate and key cannot be used together.
        """
        found = _CERTIFICATE.search(_read(self.cert, "--tls-cert"))
        if found is None:
            raise UsageError(f"--tls-cert: {self.cert} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
        if not _KEY.search(_read(self.key, "--tls-key")):
            raise UsageError(f"--tls-key: {self.key} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)")
        self._load_into(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        return _ends(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(_PROTOCOLS)
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> float:
        """Show it from the next handshake on; returns when it ends. If it cannot be used `context` stays as it is."""
        # Checked on another context first: OpenSSL drops the old key as soon as it has a certificate of another one.
        ends = self.check()
        self._load_into(context)
        return ends

    def _load_into(self, context: ssl.SSLContext) -> None:
        def no_passphrase() -> str:  # without this, OpenSSL would ask at the terminal
            raise UsageError(f"--tls-key: {self.key} has a passphrase; write it without: openssl pkey -in {self.key}")

        try:
            context.load_cert_chain(self.cert, self.key, no_passphrase)
        except ssl.SSLError as error:
            if error.reason in _OF_ANOTHER:
                raise UsageError(f"--tls-key: {self.key} is not the key of the certificate in {self.cert}") from error
            why = words(error) if error.reason else "one of them is damaged"
            raise UsageError(f"--tls-cert: {self.cert} with {self.key} cannot be used: {why}") from error


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine's certificate is checked against: the system's authorities, those of a file, or nothing."""

    ca: str | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """For connections to the engine.

        Raises:
            UsageError: the file of authorities cannot be used.
        """
        authorities = None
        if self.ca is not None:
            authorities = b"\n".join(_CERTIFICATE.findall(_read(self.ca, "--upstream-ca"))).decode("ascii", "replace")
            if not authorities:
                raise UsageError(f"--upstream-ca: {self.ca} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
        try:
            context = ssl.create_default_context(cadata=authorities)
        except ssl.SSLError as error:
            raise UsageError(f"--upstream-ca: {self.ca} cannot be used: a certificate in it is damaged") from error
        context.set_alpn_protocols(_PROTOCOLS)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


SYSTEM = Trust()


def words(error: ssl.SSLError) -> str:
    """Why TLS failed, without OpenSSL's codes and lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    return _CODES.sub("", str(error)).lower()


def _read(path: str, flag: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read: {system_reason(error)}") from error


def _ends(certificate: bytes) -> float:
    """The notAfter of a certificate in DER (RFC 5280, 4.1); the standard library shows that of a peer only."""
    ((_, signed),) = _elements(certificate)
    _, fields = next(_elements(signed))
    _serial, _algorithm, _issuer, (_, validity), *_ = (
        element for element in _elements(fields) if element[0] != _EXPLICIT_VERSION
    )
    _, (tag, end) = _elements(validity)
    text = end.decode("ascii")
    if tag == _UTC_TIME:  # a year of two digits, from 1950 to 2049
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each value in a row of them."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:  # a long one: these are the bytes of its length
            start, at = at, at + (length & 0x7F)
            length = int.from_bytes(der[start:at], "big")
        yield tag, der[at : at + length]
        at += length
