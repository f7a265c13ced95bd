"""Authentication of the metrics port: the bearer tokens and passwords in a file."""

import base64
import hmac

from exporters.text.errors import UsageError, read_text

_CHALLENGES = {"bearer": 'Bearer realm="vllm-slo"', "basic": 'Basic realm="vllm-slo", charset="UTF-8"'}


class Credentials:
    """The accepted Authorization headers; none until the file has been read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._accepted: tuple[bytes, ...] = ()

    def read(self) -> None:
        """Read the file again; if it is invalid, keep the accepted credentials.

        Raises:
            UsageError: all mistakes in the file; the message contains no secret.
        """
        lines = read_text(self._path, "--metrics-auth-file").splitlines()
        accepted: list[bytes] = []
        mistakes: list[str] = []
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    accepted.append(_credential(line))
                except ValueError as error:
                    mistakes.append(f"{self._path}:{number}: {error}")
        if not accepted and not mistakes:
            mistakes.append(
                f"{self._path}: contains no credential; write lines 'bearer TOKEN' or 'basic USER:PASSWORD'"
            )
        if mistakes:
            raise UsageError("\n".join(mistakes))
        self._accepted = tuple(accepted)

    def admit(self, authorization: str) -> bool:
        """Whether this Authorization header is accepted."""
        scheme, _, value = authorization.partition(" ")
        header = f"{scheme.lower()} {value.strip()}".encode(errors="surrogateescape")
        # Compare with all in constant time, so that the duration reveals nothing about the secrets.
        return sum(hmac.compare_digest(header, accepted) for accepted in self._accepted) > 0

    @property
    def challenges(self) -> list[str]:
        """Values of WWW-Authenticate."""
        schemes = {accepted.split(b" ")[0].decode() for accepted in self._accepted}
        return [challenge for scheme, challenge in _CHALLENGES.items() if scheme in schemes or not schemes]


def _credential(line: str) -> bytes:
    """The header that a line accepts. Messages do not quote the line, because it contains a secret."""
    kind, *rest = line.split(maxsplit=1)
    secret = rest[0].rstrip() if rest else ""
    if kind == "bearer":
        if not secret or " " in secret or not secret.isascii() or not secret.isprintable():
            raise ValueError("a token is one word of printable ASCII; write 'bearer TOKEN'")
        return f"bearer {secret}".encode()
    if kind == "basic":
        user, _, password = secret.partition(":")
        if not user or not password:
            raise ValueError("user and password must not be empty; write 'basic USER:PASSWORD'")
        return b"basic " + base64.b64encode(secret.encode())
    raise ValueError("unknown scheme; write 'bearer TOKEN' or 'basic USER:PASSWORD'")
