"""The drift between the clock of this machine and those of engine, sidecar and Prometheus."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from compose.doctor.finding import Finding, State, Unread
from compose.doctor.http_fetch import Response
from compose.doctor.prometheus_reading import ServerTime

_DATE_SECONDS = 2.0
"""A `Date` header is cut to a second, and servers such as uvicorn update it once per second."""

_WARNING = 0.5
_FAILED = 30.0

Interval = tuple[float, float]
"""The least and the greatest possible offset of a clock, in seconds."""


def date_offset(response: Response) -> Interval | Unread:
    """The offset of the clock that wrote the `Date` header."""
    try:
        date = parsedate_to_datetime(response.date or "").timestamp()
    except ValueError:
        return Unread("its responses have no valid Date header")
    return date - response.received_at, date + _DATE_SECONDS - response.sent_at


def query_offset(at: ServerTime) -> Interval:
    """The offset of the clock that evaluated `time()`."""
    return at.time - at.received_at, at.time - at.sent_at


def proven_drift(offset: Interval) -> float:
    """The offset nearest to 0 that is possible."""
    least, greatest = offset
    return least if least > 0 else min(greatest, 0.0)


def clocks(sources: Mapping[str, Response | ServerTime | Unread]) -> Finding:
    """The drift of each clock that could be read; `sources` by name."""
    drifts: dict[str, float] = {}
    unread: list[str] = []
    for name, source in sources.items():
        offset = (
            date_offset(source)
            if isinstance(source, Response)
            else query_offset(source)
            if isinstance(source, ServerTime)
            else source
        )
        if isinstance(offset, Unread):
            unread.append(name)
        else:
            drifts[name] = proven_drift(offset)
    looked_at = "Date headers and time() of Prometheus, against the clock of this machine"
    if not drifts:
        return Unread("no clock was read: " + ", ".join(unread), "start the services, or set their URLs").not_checked(
            looked_at
        )
    found = ", ".join(f"{name} {_spell(drift)}" for name, drift in drifts.items())
    found += f"; not read: {', '.join(unread)}" if unread else ""
    worst = max(map(abs, drifts.values()))
    if worst < _WARNING:
        return Finding(State.OK, looked_at, found)
    cost = (
        "log, spans and series of one request have different times, config changes are drawn at the wrong moment, and "
        "waits from x-request-start are wrong"
    )
    state = State.WARNING if worst < _FAILED else State.FAILED
    return Finding(state, looked_at, found, cost, "timedatectl set-ntp true, on each machine")


def _spell(drift: float) -> str:
    return "agrees" if abs(drift) < _WARNING else f"is at least {abs(drift):.1f} s {'ahead' if drift > 0 else 'behind'}"
