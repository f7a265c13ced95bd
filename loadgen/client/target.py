"""The target of the load and the key that it needs; a remote target needs --allow-remote."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporters.text.addresses import Address, is_loopback, parse_url
from exporters.text.errors import UsageError, read_text
from exporters.text.token_file import parse_token, read_token

API_KEY = "VLLM_SLO_API_KEY"
"""The environment variable of the key."""


@dataclass(frozen=True, slots=True)
class Target:
    """The base URL of an OpenAI-compatible API; `path` is the prefix of `/v1/...`, `api_key` is secret.

    `ca` has the CA certificates of the target in PEM, without it the system's are trusted.
    """

    host: str
    port: int
    tls: bool = False
    path: str = ""
    api_key: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)

    @property
    def netloc(self) -> str:
        return str(Address(self.host, self.port))

    @property
    def authorization(self) -> tuple[tuple[str, str], ...]:
        """The headers of every request that contain the API key."""
        return () if self.api_key is None else (("authorization", f"Bearer {self.api_key}"),)

    def without_key(self, text: str) -> str:
        """A text of the target without the API key, which a server may return in an error."""
        return text if self.api_key is None else text.replace(self.api_key, "<API key>")

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.path}"


def parse(url: str, *, allow_remote: bool, api_key: str | None = None, ca_file: str | None = None) -> Target:
    """The target at the base URL `url`.

    Raises:
        UsageError: the URL is invalid, or remote without `allow_remote`; or the CA file cannot be read.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"--target: {url!r} contains a space or a character that is not ASCII; percent-encode it")
    parts = parse_url("--target", url, "a base URL without a query, such as http://127.0.0.1:8000")
    if parts.user:
        raise UsageError("--target: a user is not supported; remove it from the URL")
    if not is_loopback(parts.host) and not allow_remote:
        raise UsageError(
            f"--target: {parts.host} is another machine; use 127.0.0.1, or set --allow-remote if you may load-test it"
        )
    tls = parts.scheme == "https"
    path = parts.path.rstrip("/").removesuffix("/v1")
    if ca_file is not None and not tls:
        raise UsageError(f"--target-ca: {url} is not an https URL; remove the flag, or write https")
    ca = None if ca_file is None else read_text(ca_file, "--target-ca")
    if ca is not None and "-----BEGIN CERTIFICATE-----" not in ca:
        raise UsageError(f"--target-ca: {ca_file} contains no PEM certificate (-----BEGIN CERTIFICATE-----)")
    return Target(parts.host, parts.port or (443 if tls else 80), tls, path, api_key, ca)


def read_api_key(path: str | None, environment: Mapping[str, str]) -> str | None:
    """The API key in the file of --api-key-file, else in the environment.

    Raises:
        UsageError: the file cannot be read, or the key is invalid; the message shows nothing of the key.
    """
    if path is not None:
        return read_token(path, "--api-key-file", what="key")
    return parse_token(environment[API_KEY], API_KEY, what="key") if environment.get(API_KEY) else None
