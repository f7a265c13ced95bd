"""The pages under /admin/, for whoever has the admin token: declare a flip, list the flips."""

import hmac
import re
import time
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from exporters.engines.config_changes import DeclarationResult
from exporters.engines.engine_group import EngineGroup
from exporters.errors import UsageError, system_reason

PREFIX = "/admin/"
LARGEST = 64 * 1024
MOST_SETTINGS = 100
"""Settings that may be declared for an engine: each is a series."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,99}")
LONGEST_VALUE, LONGEST_NOTE = 200, 1000


def read_token(path: str, flag: str) -> bytes:
    """The one word of a token file.

    Raises:
        UsageError: there is none; the message holds nothing of the file.
    """
    try:
        words = Path(path).read_text(encoding="utf-8").split()
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read: {system_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag}: {path} is no text in UTF-8") from error
    if len(words) != 1 or not words[0].isascii() or not words[0].isprintable():
        raise UsageError(f"{flag}: {path}: a token is one word of printable ASCII; make one: openssl rand -hex 32")
    return words[0].encode()


class Declaration(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /admin/flip; without `engine` it is said of every engine."""

    set: dict[str, str]
    note: str = ""
    engine: str | None = None


class Accepted(msgspec.Struct):
    """What became of each setting, by engine."""

    engines: dict[str, dict[str, DeclarationResult]]


class Refused(msgspec.Struct):
    """Every mistake of a declaration; nothing of it is used."""

    errors: list[str]


def mistakes(asked: Declaration) -> list[str]:
    """All that is wrong with a declaration, whoever the engines are."""
    found = [] if asked.set else ["set: nothing is declared; name at least one setting, such as scheduling_policy"]
    for name, value in asked.set.items():
        if not _NAME.fullmatch(name):
            found.append(f"set: {name[:100]!r} is no name; write 1 to 100 letters, digits and _.:-, no digit first")
        elif not value or len(value) > LONGEST_VALUE or not value.isprintable():
            found.append(f"set: {name}: a value is 1 to {LONGEST_VALUE} printable characters")
    if len(asked.note) > LONGEST_NOTE:
        found.append(f"note: {len(asked.note)} characters; {LONGEST_NOTE} are kept")
    return found


class Admin:
    """Opened by the admin token alone: what opens the metrics opens nothing here."""

    def __init__(self, fleet: EngineGroup, token_file: str) -> None:
        self._fleet = fleet
        self._path = token_file
        self._token: bytes | None = None

    def read(self) -> None:
        """Take the file as it is now; if it is wrong, keep the token.

        Raises:
            UsageError: it is.
        """
        self._token = read_token(self._path, "--admin-token-file")

    @property
    def routes(self) -> list[web.RouteDef]:
        return [web.post("/admin/flip", self._flip), web.get("/admin/flips", self._flips)]

    async def guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        token = given.strip().encode(errors="surrogateescape")
        if self._token is not None and scheme.lower() == "bearer" and hmac.compare_digest(token, self._token):
            return await handler(request)
        return web.Response(
            status=401,
            text="vllm-slo: this page needs 'Authorization: Bearer ...' with the token of --admin-token-file\n",
            headers={"www-authenticate": 'Bearer realm="vllm-slo admin"'},
        )

    async def _flip(self, request: web.Request) -> web.Response:
        if (request.content_length or 0) > LARGEST:
            return _refused([f"the body has {request.content_length} bytes; {LARGEST} are read"], 413)
        try:
            asked = msgspec.json.decode(await request.read(), type=Declaration)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _refused([f'{error}; write {{"set": {{"NAME": "VALUE"}}, "note": "TEXT"}}'])
        states = {state.name: state for state in self._fleet.states}
        found = mistakes(asked)
        if asked.engine is not None and asked.engine not in states:
            found.append(f"engine: {asked.engine[:100]!r} is none; there is {' and '.join(states)}")
        engines = list(states) if asked.engine is None else [asked.engine]
        for name in engines:
            if name in states and len(states[name].watch.history.declared.keys() | asked.set.keys()) > MOST_SETTINGS:
                found.append(f"set: {name} would have more than {MOST_SETTINGS} declared settings")
        if found:
            return _refused(found)
        return _json(Accepted(self._fleet.declare(engines, asked.set, asked.note)))

    async def _flips(self, _: web.Request) -> web.Response:
        watches = {state.name: state.watch for state in self._fleet.states}
        flips = [(change.at, name, change) for name, watch in watches.items() for change in watch.changes]
        listed = [{"engine": name, **msgspec.to_builtins(change)} for _, name, change in sorted(flips, key=_by_time)]
        engines = {
            name: {"revision": watch.revision, "declared": watch.history.declared, "awaited": watch.history.awaited}
            for name, watch in watches.items()
        }
        return _json({"engines": engines, "flips": listed, "now": time.time()})


def _by_time(flip: tuple[float, str, object]) -> tuple[float, str]:
    return flip[:2]


def _refused(found: list[str], status: int = 400) -> web.Response:
    return _json(Refused(found), status)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")
