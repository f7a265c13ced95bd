"""The state machines of an exchange: one for the request to the engine, one for the response to the client."""

from enum import StrEnum


class RequestState(StrEnum):
    """A parsed request is buffered and can be sent again; any other request is streamed."""

    BUFFERING = "buffering"
    BUFFERED = "buffered"
    """The body is complete; the request waits for a connection to the engine."""
    SENT = "sent"
    RETRYING = "retrying"
    """The connection was lost before the request was fully written; the request waits for another connection."""
    RESENT = "resent"

    UPLOADING = "uploading"
    """The body is still arriving; the request waits for a connection."""
    UPLOADED = "uploaded"
    FORWARDING = "forwarding"
    """The head is sent; the body is forwarded as it arrives."""
    FORWARDED = "forwarded"

    streams: bool
    body_complete: bool
    sent: bool
    """Whether at least the head was sent to the engine."""


class RequestEvent(StrEnum):
    """Events of the request."""

    STREAM = "stream"
    """The body is too large to be buffered."""
    BODY_END = "body end"
    CONNECTED = "connected"
    RETRY = "retry"


class ResponseState(StrEnum):
    """The state of the response to the client."""

    AWAITED = "awaited"
    STARTED = "started"
    COMPLETE = "complete"
    BROKEN = "broken"
    """The response started but cannot be completed."""
    ABANDONED = "abandoned"
    """The client has disconnected."""


class ResponseEvent(StrEnum):
    """Events of the response."""

    HEAD = "head"
    END = "end"
    ERROR = "error"
    """The relay sends its own error response."""
    BREAK = "break"
    ABANDON = "abandon"


REQUEST_TRANSITIONS: dict[RequestState, dict[RequestEvent, RequestState]] = {
    RequestState.BUFFERING: {
        RequestEvent.BODY_END: RequestState.BUFFERED,
        RequestEvent.STREAM: RequestState.UPLOADING,
    },
    RequestState.BUFFERED: {RequestEvent.CONNECTED: RequestState.SENT},
    RequestState.SENT: {RequestEvent.RETRY: RequestState.RETRYING},
    RequestState.RETRYING: {RequestEvent.CONNECTED: RequestState.RESENT},
    RequestState.RESENT: {},
    RequestState.UPLOADING: {
        RequestEvent.BODY_END: RequestState.UPLOADED,
        RequestEvent.CONNECTED: RequestState.FORWARDING,
    },
    RequestState.UPLOADED: {RequestEvent.CONNECTED: RequestState.FORWARDED},
    RequestState.FORWARDING: {RequestEvent.BODY_END: RequestState.FORWARDED},
    RequestState.FORWARDED: {},
}

RESPONSE_TRANSITIONS: dict[ResponseState, dict[ResponseEvent, ResponseState]] = {
    ResponseState.AWAITED: {
        ResponseEvent.HEAD: ResponseState.STARTED,
        ResponseEvent.ERROR: ResponseState.COMPLETE,
        ResponseEvent.ABANDON: ResponseState.ABANDONED,
    },
    ResponseState.STARTED: {
        ResponseEvent.END: ResponseState.COMPLETE,
        ResponseEvent.BREAK: ResponseState.BROKEN,
        ResponseEvent.ABANDON: ResponseState.ABANDONED,
    },
    ResponseState.COMPLETE: {},
    ResponseState.BROKEN: {},
    ResponseState.ABANDONED: {},
}

_STREAMS = frozenset({RequestState.UPLOADING, RequestState.UPLOADED, RequestState.FORWARDING, RequestState.FORWARDED})
_BODY_ARRIVING = frozenset({RequestState.BUFFERING, RequestState.UPLOADING, RequestState.FORWARDING})
_SENT = frozenset({RequestState.SENT, RequestState.RESENT, RequestState.FORWARDING, RequestState.FORWARDED})

for _state in RequestState:
    _state.streams = _state in _STREAMS
    _state.body_complete = _state not in _BODY_ARRIVING
    _state.sent = _state in _SENT

# Enum member access takes 0.2 us in CPython 3.11, and each request uses all of these.
_BUFFERING, _UPLOADING, _AWAITED = RequestState.BUFFERING, RequestState.UPLOADING, ResponseState.AWAITED
_RETRY, _HEAD = RequestEvent.RETRY, ResponseEvent.HEAD


class IllegalTransitionError(Exception):
    """An event that is not allowed in the current state; always a bug in the relay."""


class ExchangeState:
    """The states of the request and the response. The exchange ends when the response ends."""

    __slots__ = ("over", "request", "response")

    def __init__(self, *, streams: bool) -> None:
        self.request = _UPLOADING if streams else _BUFFERING
        self.response = _AWAITED
        self.over = False

    def on_request(self, event: RequestEvent) -> None:
        """Advance the request.

        Raises:
            IllegalTransitionError: the event is not allowed; a request is never resent after its response has started.
        """
        target = REQUEST_TRANSITIONS[self.request].get(event)
        if target is None or self.over or (event is _RETRY and self.response is not _AWAITED):
            raise IllegalTransitionError(f"request event {event!s}: {self}")
        self.request = target

    def on_response(self, event: ResponseEvent) -> None:
        """Advance the response.

        Raises:
            IllegalTransitionError: the event is not allowed; no response starts before its request is sent.
        """
        target = RESPONSE_TRANSITIONS[self.response].get(event)
        if target is None or (event is _HEAD and not self.request.sent):
            raise IllegalTransitionError(f"response event {event!s}: {self}")
        self.response = target
        self.over = not RESPONSE_TRANSITIONS[target]

    def __str__(self) -> str:
        return f"request {self.request}, response {self.response}"
