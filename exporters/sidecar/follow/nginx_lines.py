"""Converts lines of an nginx access log to records: what nginx knows of a request, and nothing else.

nginx does not read bodies: it knows neither tokens nor the size of a prompt. The time of the response header is
not TTFT, because vLLM sends the header before the first token.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import msgspec

from exporters.records.messages import Finished
from exporters.relay.dialects.paths import METERED, Route, endpoint_of_path, normalise, route_of_path
from exporters.requestlog.reader import BadLineError
from exporters.text.names import cut
from exporters.vocabulary.signals import OTHER, WARM_UP, Endpoint, Outcome, Verdict
from exporters.vocabulary.slo_file import Measure, Slo, SloFile
from exporters.vocabulary.verdicts import EndedRequest, Ending, judge_request, outcome_of_status

JUDGED = frozenset({Measure.AVAILABILITY, Measure.E2E})
"""Signals of SLOs that are judged; the others need more than nginx knows."""

_CLIENT_CLOSED = 499
_EVENT_STREAM = "text/event-stream"


class _AccessLine(msgspec.Struct, kw_only=True):
    """The fields of the documented `log_format` that are read; nginx writes an unknown value as an empty text."""

    msec: float  # unix, when the line was written
    request_time: float
    status: int
    method: str
    uri: str
    request_completion: str
    upstream_status: str
    upstream_header_time: str
    content_type: str
    request_id: str = ""
    model: str = ""
    request_class: str = msgspec.field(name="class", default="")
    tenant: str = ""


_decode = msgspec.json.Decoder(_AccessLine).decode


def judged_by_nginx(slos: SloFile) -> SloFile:
    """The SLO file without the SLOs that cannot be judged from an access log: their series are absent."""
    return replace(slos, slos=tuple(slo for slo in slos.slos if slo.measure in JUDGED))


class NginxLines:
    """Reads lines of the format `nginx`."""

    def __init__(self, slos: SloFile, allow_paths: Iterable[str] = ()) -> None:
        """`slos`: the result of `judged_by_nginx`."""
        self._slos = slos
        self._allow_paths = frozenset(allow_paths)

    def record(self, line: bytes) -> Finished | None:
        """The record of a line; None for a request that a sidecar would not relay or not count.

        Raises:
            BadLineError: the line does not have the documented fields.
        """
        try:
            access = _decode(line if line.isascii() else line.decode(errors="replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadLineError(str(error)) from error
        path = normalise(access.uri)
        if access.method == "OPTIONS" or route_of_path(path, self._allow_paths) is Route.REFUSED:
            return None
        api = endpoint_of_path(path)
        outcome = _outcome(access)
        request_class = self._request_class(access.request_class, api)
        verdicts: dict[str, Verdict] = {}
        if path in METERED:
            verdicts = _verdicts(self._slos.slos_of(request_class), access.request_time, outcome)
        return Finished(
            time=access.msec - access.request_time,
            request_id=cut(access.request_id),
            model=cut(access.model),
            request_class=request_class if path in METERED else OTHER,
            tenant=self._slos.tenants.bounded(access.tenant),
            route=cut(path),
            stream=access.content_type.lower().startswith(_EVENT_STREAM),
            status=access.status,
            outcome=outcome,
            metered=False,
            e2e=access.request_time,
            slo=verdicts,
            api=api,
        )

    def _request_class(self, header: str, api: Endpoint) -> str:
        """The class of the header, else the first that fits; `other` if that depends on the size of the request."""
        if header in self._slos.class_names or header == WARM_UP:
            return header
        for each in self._slos.classes:
            if each.route is None or api in each.route:
                return each.name if each.prompt_tokens is None and each.max_tokens is None else OTHER
        return OTHER


def _outcome(access: _AccessLine) -> Outcome:
    if access.status == _CLIENT_CLOSED:
        return Outcome.CLIENT_ABORT
    no_response = bool(access.upstream_status) and not _last(access.upstream_header_time)
    if no_response and access.status == 504:
        return Outcome.TIMEOUT_IDLE
    if no_response and access.status == 502:
        return Outcome.UPSTREAM_UNREACHABLE
    outcome = outcome_of_status(access.status)
    if outcome is Outcome.OK and access.request_completion != "OK":
        return Outcome.CLIENT_ABORT
    return outcome


def _last(values: str) -> str:
    """The value of the last server that nginx has tried."""
    return values.replace(":", ",").rpartition(",")[2].strip(" -")


def _verdicts(slos: Iterable[Slo], e2e: float, outcome: Outcome) -> dict[str, Verdict]:
    # The timeout of the first token is infinite, because its time is unknown.
    return judge_request(slos, inf, EndedRequest(stream=True, ending=Ending(at=e2e, outcome=outcome)))
