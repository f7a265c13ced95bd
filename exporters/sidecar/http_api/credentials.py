"""Who may see the metrics pages: the bearer tokens and passwords of one file."""

import base64
import hmac
from pathlib import Path

from exporters.errors import UsageError, system_reason

_CHALLENGES = {"bearer": 'Bearer realm="vllm-slo"', "basic": 'Basic realm="vllm-slo", charset="UTF-8"'}


class Credentials:
    """What an Authorization header may hold; until the file has been read, nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._accepted: tuple[bytes, ...] = ()

    def read(self) -> None:
        """Take the file as it is now; if it is wrong, keep what was accepted.

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
        """Whether this header is one of those."""
        scheme, _, value = authorization.partition(" ")
        given = f"{scheme.lower()} {value.strip()}".encode(errors="surrogateescape")
        # All are compared, in constant time each: how long it takes tells nothing of how near a guess was.
        return sum(hmac.compare_digest(given, accepted) for accepted in self._accepted) > 0

    @property
    def challenges(self) -> list[str]:
        """Values of WWW-Authenticate."""
        kinds = {accepted.split(b" ")[0].decode() for accepted in self._accepted}
        return [challenge for kind, challenge in _CHALLENGES.items() if kind in kinds or not kinds]


def _credential(line: str) -> bytes:
    """A line as the header that it admits. The line itself is in no message: any word of it may be the secret."""
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
