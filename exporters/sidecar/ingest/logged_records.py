"""Converts a line of the request log to the record that it was written from, as far as the line has its fields."""

from exporters.records.messages import Finished
from exporters.relay.dialects.paths import endpoint_of_path
from exporters.requestlog.entry import LogEntry
from exporters.text.units import from_milliseconds as seconds
from exporters.vocabulary.signals import Endpoint
from exporters.vocabulary.verdicts import goodput


def record_of(entry: LogEntry) -> Finished:
    """The record with all values that the series need, but no id, path or hash of the request."""
    ttft, queue, prefill = seconds(entry.ttft_ms), seconds(entry.queue_ms), seconds(entry.prefill_ms)
    frontend = seconds(entry.frontend_ms)
    before_relay = 0.0
    if ttft is not None and queue is not None and prefill is not None and frontend is not None:
        before_relay = ttft - queue - prefill - frontend
    return Finished(
        time=entry.arrived,
        request_id="",
        model=entry.model or "",
        request_class=entry.request_class,
        tenant=entry.tenant,
        route="",
        api=Endpoint.RESPONSES_BACKGROUND if entry.background else endpoint_of_path(entry.route),
        stream=entry.stream,
        status=entry.status,
        outcome=entry.outcome,
        metered=True,
        e2e=entry.e2e_ms / 1000,
        prompt_tokens=entry.prompt_tokens,
        completion_tokens=entry.completion_tokens,
        reasoning_tokens=entry.reasoning_tokens,
        cached_tokens=entry.cached_tokens,
        prompt_repeat=entry.prompt_repeat,
        body_repeat=entry.body_repeat,
        shareable_tokens=entry.shareable_tokens,
        ttft=ttft,
        wait_at_least=seconds(entry.wait_ms_at_least),
        ttft_answer=seconds(entry.ttft_answer_ms),
        tpot=seconds(entry.tpot_ms),
        queue=queue,
        prefill=prefill,
        decode=seconds(entry.decode_ms),
        before_relay=before_relay,
        slo=entry.slo,
        goodput=goodput(entry.slo.values()),
        structured_kind=entry.structured_kind,
        structured_result=entry.structured_result,
    )
