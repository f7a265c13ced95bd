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
    looked_at = "Date headers and time() of Prometheus, against the clock of this machine"
    offsets = {name: _offset(source) for name, source in sources.items()}
    drifts = {name: proven_drift(offset) for name, offset in offsets.items() if not isinstance(offset, Unread)}
    unread = [name for name in offsets if name not in drifts]
    if not drifts:
        return Unread(f"not read: {', '.join(unread)}", "start the services, or set their URLs").not_checked(looked_at)
    parts = {
        "agree": [name for name, drift in drifts.items() if abs(drift) < _WARNING],
        "differ": [_spell(name, drift) for name, drift in drifts.items() if abs(drift) >= _WARNING],
        "not read": unread,
    }
    found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in parts.items() if names)
    if not parts["differ"]:
        return Finding(State.OK, looked_at, found)
    return Finding(
        State.WARNING if max(map(abs, drifts.values())) < _FAILED else State.FAILED,
        looked_at,
        found,
        "log, spans and series of one request have different times, config changes are drawn at the wrong moment, and "
        "waits from x-request-start are wrong",
        "timedatectl set-ntp true, on each machine",
    )


def _offset(source: Response | ServerTime | Unread) -> Interval | Unread:
    match source:
        case Response():
            return date_offset(source)
        case ServerTime():
            return query_offset(source)
        case Unread():
            return source


def _spell(name: str, drift: float) -> str:
    return f"{name} is at least {abs(drift):.1f} s {'ahead' if drift > 0 else 'behind'}"
