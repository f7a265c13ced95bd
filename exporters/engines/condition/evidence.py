"""What the sidecar sees of an engine at one moment: its last scrape, and its requests at the relays."""

from dataclasses import dataclass
from enum import StrEnum


class Contact(StrEnum):
    """What the last attempt to scrape an engine met."""

    ANSWERS = "answers"
    SILENT = "silent"
    """The connection was accepted, and no response came in time."""
    REFUSED = "refused"
    """No process listens, or the host cannot be found."""
    UNREADABLE = "unreadable"
    """A response that has no metrics, such as status 401: it says nothing about the requests."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The last successful scrape of one process of an engine."""

    at: float
    """Monotonic seconds."""
    started_at: float | None = None
    """Start of the process in Unix seconds, if the engine exposes it."""
    work: tuple[float, ...] = ()
    """Values that change only while the engine works: tokens, finished requests, KV cache usage."""
    counts_live: bool = True
    """Whether tokens are counted when they are generated, not when a request ends."""
    running: float = 0.0
    waiting: float = 0.0
    """Requests that wait for capacity, without those that wait for an adapter or a transfer."""
    deferred: float = 0.0
    """The others."""
    paused: bool = False
    """Whether it sleeps, or has paused generation while its weights are updated."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The open requests at the relays, if all of them go to this engine."""

    awaited: int = 0
    """Requests for which the relay waits for the engine: neither for a body nor for a client that does not read."""
    probing: bool = False
    """Whether a probe waits as well."""
    models: frozenset[str] = frozenset()
    """Models of the awaited requests."""
    longest_prompt: float = 0.0
    """Estimated tokens of the longest prompt of a request without its first token."""
    output_at: float | None = None
    """When the last output arrived, in monotonic seconds."""
    output_models: frozenset[str] = frozenset()
    """Models of which output has arrived."""
    failed: int = 0
    """Requests that the engine has answered with status 5xx, cut or not accepted, since the relays started."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence at one moment, in monotonic seconds."""

    at: float
    contact: Contact
    scrape: Scrape | None = None
    """None before the first successful scrape."""
    requests: Requests = Requests()
