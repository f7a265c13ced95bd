"""Removes the usage that the relay requested from a stream of completion events."""

import msgspec

from exporters.relay.bodies.request_body import ABSENT, decode_members


class _UsageEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The members of the event that engines add to a stream because of `include_usage`."""

    id: msgspec.Raw = ABSENT
    object: msgspec.Raw = ABSENT
    created: msgspec.Raw = ABSENT
    model: msgspec.Raw = ABSENT
    choices: msgspec.Raw = ABSENT
    system_fingerprint: msgspec.Raw = ABSENT
    service_tier: msgspec.Raw = ABSENT
    obfuscation: msgspec.Raw = ABSENT
    usage: msgspec.Raw = ABSENT
    metrics: msgspec.Raw = ABSENT


_decode_usage_event = msgspec.json.Decoder(_UsageEvent).decode


def without_usage(event: bytes, data: bytes) -> bytes:
    """The event with this payload, without its `usage`; empty if it exists only because of `include_usage`.

    llama.cpp adds its `timings` to the last event of any stream, which is the usage event if there is one. The bytes of
    all other values are unchanged. An event that cannot be rewritten is returned as it is.
    """
    try:
        _decode_usage_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _without_member(event, data)
    return b""


def _without_member(event: bytes, data: bytes) -> bytes:
    try:
        members = decode_members(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return event
    others = members.keys() - _UsageEvent.__struct_fields__
    if all(bytes(members[name]) == b"null" for name in others):
        return b""
    del members["usage"]
    # A payload of several `data` lines is not found in the event.
    return event.replace(data, msgspec.json.encode(members), 1)
