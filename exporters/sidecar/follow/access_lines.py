"""Converts JSON lines of a gateway's access log to records: what the gateway knows of a request, and nothing else."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import msgspec

from exporters.records.messages import Finished
from exporters.relay.dialects.paths import METERED, Route, endpoint_of_path, normalise, route_of_path
from exporters.requestlog.reader import BadLineError
from exporters.sidecar.follow.access_fields import AccessFields, Value
from exporters.text.names import cut
from exporters.vocabulary.signals import GENERATING, OTHER, WARM_UP, Endpoint, Outcome
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import EndedRequest, Ending, judge_request, outcome_of_status

_EVENT_STREAM = "text/event-stream"
_WITH_OUTPUT = frozenset({Outcome.OK, Outcome.CLIENT_ABORT, Outcome.TRUNCATED})
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def judged_by(fields: AccessFields | None, slos: SloFile) -> SloFile:
    """The SLO file without the SLOs that an access log cannot judge: their series are absent."""
    if fields is None:
        return slos
    return replace(slos, slos=tuple(slo for slo in slos.slos if slo.measure in fields.judged))


class AccessLines:
    """Reads the lines of an access log by its field map."""

    def __init__(self, fields: AccessFields, slos: SloFile, allow_paths: Iterable[str] = ()) -> None:
        """`slos`: the result of `judged_by`."""
        self._fields = fields
        self._slos = slos
        self._allow_paths = frozenset(allow_paths)

    def record(self, line: bytes) -> Finished | None:
        """The record of a line; None for a request that a sidecar would not relay or not count.

        Raises:
            BadLineError: it is not an object, or lacks a field that the map requires.
        """
        try:
            values = _decode(line if line.isascii() else line.decode(errors="replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadLineError(str(error)) from error
        if not (target := self._text(Value.PATH, values)):
            raise self._missing(Value.PATH)
        path = normalise(target)
        if self._text(Value.METHOD, values) == "OPTIONS" or route_of_path(path, self._allow_paths) is Route.REFUSED:
            return None
        return self._record(values, path)

    def _record(self, line: Mapping[str, Any], path: str) -> Finished:
        status, (start, duration) = int(self._needed(Value.STATUS, line)), self._times(line)
        metered, endpoint = path in METERED, endpoint_of_path(path)
        outcome = next(
            (each.outcome for each in self._fields.outcomes if each.applies(line)), outcome_of_status(status)
        )
        prompt, completion, cached, most = (
            None if (value := self._number(each, line)) is None else int(value)
            for each in (Value.PROMPT_TOKENS, Value.COMPLETION_TOKENS, Value.CACHED_TOKENS, Value.MAX_TOKENS)
        )
        stream = self._stream(line)
        first = self._number(Value.FIRST_TOKEN, line) if stream else None
        if outcome not in _WITH_OUTPUT:  # a gateway may write the time of the failure, and zeros
            first = prompt = completion = cached = None
        ttft = None if first is None else max(0.0, first - start)
        tpot = None if ttft is None or completion is None or completion < 2 else (duration - ttft) / (completion - 1)
        request_class = self._request_class(line, endpoint, prompt, most)
        record = Finished(
            time=start,
            request_id=cut(self._text(Value.REQUEST_ID, line)),
            model=cut(self._text(Value.MODEL, line)),
            request_class=request_class if metered else OTHER,
            tenant=self._slos.tenants.bounded(self._text(Value.TENANT, line)),
            route=cut(path),
            stream=stream,
            status=status,
            outcome=outcome,
            metered=False,
            e2e=duration,
            api=endpoint,
            ttft=ttft,
            tpot=tpot if outcome is Outcome.OK else None,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            max_tokens=most,
        )
        if metered:
            ending = Ending(at=duration, outcome=outcome, last_chunk=duration, completion_tokens=completion)
            # Without the time of the first token, its timeout says nothing.
            timeout = inf if Value.FIRST_TOKEN not in self._fields.fields else self._slos.first_token_timeout
            ended = EndedRequest(stream=stream, ending=ending, max_tokens=most, first_token=ttft)
            record.slo = judge_request(self._slos.slos_of(request_class), timeout, ended)
        return record

    def _times(self, line: Mapping[str, Any]) -> tuple[float, float]:
        """The start, in Unix seconds, and the duration."""
        fields = self._fields.fields
        if Value.START not in fields:
            duration = self._needed(Value.DURATION, line)
            return self._needed(Value.END, line) - duration, duration
        start = self._needed(Value.START, line)
        if Value.DURATION in fields:
            return start, self._needed(Value.DURATION, line)
        return start, max(0.0, self._needed(Value.END, line) - start)

    def _stream(self, line: Mapping[str, Any]) -> bool:
        field = self._fields.fields.get(Value.STREAM)
        if field is not None:
            return field.text(line).lower() == "true"
        return self._text(Value.CONTENT_TYPE, line).lower().startswith(_EVENT_STREAM)

    def _request_class(self, line: Mapping[str, Any], endpoint: Endpoint, prompt: int | None, most: int | None) -> str:
        """The class of the header, else the first that fits; `other` if that depends on a size that is not known."""
        header = self._text(Value.CLASS, line)
        if header in self._slos.class_names or header == WARM_UP:
            return header
        limit = (inf if endpoint in GENERATING else 0) if most is None else most
        for each in self._slos.classes:
            if each.route is not None and endpoint not in each.route:
                continue
            needs_prompt, needs_limit = each.prompt_tokens is not None, each.max_tokens is not None
            if (needs_prompt and prompt is None) or (needs_limit and Value.MAX_TOKENS not in self._fields.fields):
                break
            if each.fits(prompt or 0, limit, endpoint):
                return each.name
        return OTHER

    def _text(self, value: Value, line: Mapping[str, Any]) -> str:
        field = self._fields.fields.get(value)
        return "" if field is None else field.text(line)

    def _number(self, value: Value, line: Mapping[str, Any]) -> float | None:
        field = self._fields.fields.get(value)
        return None if field is None else field.number(line)

    def _needed(self, value: Value, line: Mapping[str, Any]) -> float:
        found = self._number(value, line)
        if found is None:
            raise self._missing(value)
        return found

    def _missing(self, value: Value) -> BadLineError:
        return BadLineError(f"the field {self._fields.fields[value].name} is missing")
