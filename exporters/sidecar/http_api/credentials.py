"""Authentication of the metrics page: the bearer tokens and passwords of one file."""

import base64
import hmac
from pathlib import Path

from exporters.errors import UsageError, system_reason

_CHALLENGES = {"bearer": 'Bearer realm="vllm-slo"', "basic": 'Basic realm="vllm-slo", charset="UTF-8"'}


class Credentials:
    """The Authorization headers that are accepted; none until the file has been read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._accepted: tuple[bytes, ...] = ()

    def read(self) -> None:
        """Read the file again; if it is wrong, keep the accepted credentials.

        Raises:
            UsageError: every mistake of the file, none with a secret in it.
        """
        try:
            lines = Path(self._path).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            reason = system_reason(error)
            raise UsageError(f"--metrics-auth-file: {self._path} cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"--metrics-auth-file: {self._path} is no text in UTF-8") from error
        accepted: list[bytes] = []
        mistakes: list[str] = []
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    accepted.append(_credential(line))
                except ValueError as error:
                    mistakes.append(f"{self._path}:{number}: {error}")
        if not accepted and not mistakes:
            mistakes.append(f"{self._path}: no credential; write 'bearer TOKEN' or 'basic USER:PASSWORD' on a line")
        if mistakes:
            raise UsageError("\n".join(mistakes))
        self._accepted = tuple(accepted)

    def admit(self, authorization: str) -> bool:
        """Whether this Authorization header is accepted."""
        scheme, _, value = authorization.partition(" ")
        header = f"{scheme.lower()} {value.strip()}".encode(errors="surrogateescape")
        # Compares all, in constant time each: the duration does not show how close a guess was.
        return sum(hmac.compare_digest(header, accepted) for accepted in self._accepted) > 0

    @property
    def challenges(self) -> list[str]:
        """Values of WWW-Authenticate."""
        schemes = {accepted.split(b" ")[0].decode() for accepted in self._accepted}
        return [challenge for scheme, challenge in _CHALLENGES.items() if scheme in schemes or not schemes]


def _credential(line: str) -> bytes:
    """The header that a line accepts. Messages do not quote the line: any word of it may be the secret."""
    kind, *rest = line.split(maxsplit=1)
    secret = rest[0].rstrip() if rest else ""
    if kind == "bearer":
        if not secret or " " in secret or not secret.isascii() or not secret.isprintable():
            raise ValueError("a token is one word of printable ASCII; write 'bearer TOKEN'")
        return f"bearer {secret}".encode()
    if kind == "basic":
        user, _, password = secret.partition(":")
        if not user or not password:
            raise ValueError("a user and a password stand around a colon; write 'basic USER:PASSWORD'")
        return b"basic " + base64.b64encode(secret.encode())
    raise ValueError("no kind of credential; write 'bearer TOKEN' or 'basic USER:PASSWORD'")
