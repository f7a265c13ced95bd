"""Converts lines of a sidecar's request log to records, with the verdicts that the sidecar has given."""

from exporters.records import Finished
from exporters.relay.paths import endpoint_of_path
from exporters.requestlog.log_entry import LogEntry
from exporters.requestlog.reader import parse_line
from exporters.signals import OTHER, Endpoint, Verdict
from exporters.slos import SloFile
from exporters.verdicts import goodput


class RequestLogLines:
    """Reads lines of the format `vllm-slo`.

    The SLO file may have changed since: a class or tenant that it does not have becomes `other`, and a verdict of an
    SLO that does not apply to the class is not counted.
    """

    def __init__(self, slos: SloFile) -> None:
        self._slos = slos
        self._names = {name: frozenset(slo.name for slo in slos.slos_of(name)) for name in slos.class_names}

    def record(self, line: bytes) -> Finished:
        """The record of a line.

        Raises:
            BadLineError: it is no entry.
        """
        entry = parse_line(line)
        request_class = entry.request_class if entry.request_class in self._names else OTHER
        names = self._names[request_class]
        verdicts = {name: verdict for name, verdict in entry.slo.items() if name in names}
        return _record(entry, request_class, self._slos.tenants.bounded(entry.tenant), verdicts)


def _record(entry: LogEntry, request_class: str, tenant: str, verdicts: dict[str, Verdict]) -> Finished:
    ttft, queue, prefill, frontend = map(_seconds, (entry.ttft_ms, entry.queue_ms, entry.prefill_ms, entry.frontend_ms))
    record = Finished(
        time=entry.arrived,
        request_id=entry.request_id,
        model=entry.model or "",
        request_class=request_class,
        tenant=tenant,
        endpoint=entry.endpoint,
        stream=entry.stream,
        status=entry.status,
        outcome=entry.outcome,
        metered=True,
        e2e=entry.e2e_ms / 1000,
        prompt_tokens=entry.prompt_tokens,
        completion_tokens=entry.completion_tokens,
        reasoning_tokens=entry.reasoning_tokens,
        cached_tokens=entry.cached_tokens,
        prompt_sha256=entry.prompt_sha256,
        prompt_repeat=entry.prompt_repeat,
        body_repeat=entry.body_repeat,
        shareable_tokens=entry.shareable_tokens,
        ttft=ttft,
        ttft_answer=_seconds(entry.ttft_answer_ms),
        tpot=_seconds(entry.tpot_ms),
        queue=queue,
        prefill=prefill,
        decode=_seconds(entry.decode_ms),
        slo=verdicts,
        goodput=goodput(verdicts.values()),
        api=Endpoint.RESPONSES_BACKGROUND if entry.background else endpoint_of_path(entry.endpoint),
        structured_kind=entry.structured_kind,
        structured_result=entry.structured_result,
    )
    if ttft is not None and queue is not None and prefill is not None and frontend is not None:
        record.before_relay = ttft - queue - prefill - frontend  # the entry has the difference, not this part
    return record


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
