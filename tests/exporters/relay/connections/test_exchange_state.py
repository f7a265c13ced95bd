"""The state machines of an exchange, for any sequence of events."""

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.relay.connections.exchange_state import (
    REQUEST_TRANSITIONS,
    RESPONSE_TRANSITIONS,
    ExchangeState,
    IllegalTransitionError,
    RequestEvent,
    RequestState,
    ResponseEvent,
    ResponseState,
)

Event = RequestEvent | ResponseEvent
EVENTS = st.lists(st.sampled_from([*RequestEvent, *ResponseEvent]), max_size=30)
TERMINAL = {ResponseState.COMPLETE, ResponseState.BROKEN, ResponseState.ABANDONED}


def advance(state: ExchangeState, event: Event) -> None:
    if isinstance(event, RequestEvent):
        state.on_request(event)
    else:
        state.on_response(event)


def accepted(state: ExchangeState, events: list[Event]) -> list[Event]:
    """The events that the state machine accepts, in order; other events must not change its state."""
    legal: list[Event] = []
    for event in events:
        before = state.request, state.response
        try:
            advance(state, event)
        except IllegalTransitionError:
            assert (state.request, state.response) == before
        else:
            legal.append(event)
    return legal


@given(st.booleans(), EVENTS)
def test_laws_of_an_exchange(streams: bool, events: list[Event]) -> None:
    state = ExchangeState(streams=streams)
    legal = accepted(state, events)
    # It ends once, accepts no event after its end, and can end at any time by an error or a disconnect.
    ends = [event for event in legal if isinstance(event, ResponseEvent) and event is not ResponseEvent.HEAD]
    assert state.over == (state.response in TERMINAL) == bool(ends)
    assert ends == (legal[-1:] if state.over else [])
    own_error = ResponseEvent.ERROR if state.response is ResponseState.AWAITED else ResponseEvent.BREAK
    for end in () if state.over else (ResponseEvent.ABANDON, own_error):
        ending = copy(state)
        ending.on_response(end)
        assert ending.over
    # A request is sent at most twice, a streamed one once, and its body ends at most once.
    sends, retries = legal.count(RequestEvent.CONNECTED), legal.count(RequestEvent.RETRY)
    assert state.request.streams == (streams or RequestEvent.STREAM in legal)
    assert retries <= (0 if state.request.streams else 1)
    assert sends <= 1 + retries
    assert state.request.sent == (sends > retries)
    assert legal.count(RequestEvent.BODY_END) == state.request.body_complete
    # No response starts before its request is sent, and no request is sent again after.
    if ResponseEvent.HEAD in legal:
        begun = legal.index(ResponseEvent.HEAD)
        assert RequestEvent.CONNECTED in legal[:begun]
        assert not {RequestEvent.RETRY, RequestEvent.CONNECTED} & set(legal[begun:])


def test_each_state_has_a_row_and_can_be_reached() -> None:
    assert set(REQUEST_TRANSITIONS) == set(RequestState)
    assert set(RESPONSE_TRANSITIONS) == set(ResponseState)
    requests = {state for row in REQUEST_TRANSITIONS.values() for state in row.values()}
    responses = {state for row in RESPONSE_TRANSITIONS.values() for state in row.values()}
    assert requests | {RequestState.BUFFERING, RequestState.UPLOADING} == set(RequestState)
    assert responses | {ResponseState.AWAITED} == set(ResponseState)


def test_the_error_of_an_illegal_event_names_the_states() -> None:
    state = ExchangeState(streams=False)
    with pytest.raises(IllegalTransitionError) as illegal:
        state.on_response(ResponseEvent.HEAD)
    assert str(illegal.value) == "response event head: request buffering, response awaited"
    state.on_response(ResponseEvent.ABANDON)
    with pytest.raises(IllegalTransitionError) as illegal:
        state.on_request(RequestEvent.BODY_END)
    assert str(illegal.value) == "request event body end: request buffering, response abandoned"
