"""Decides from a request's verdicts, its outcome and the client's sampled flag whether its trace is kept."""

from exporters.configuration.trace_sampling import in_share
from exporters.records.messages import Finished
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.verdicts import SERVER_FAULT


def bad(record: Finished) -> bool:
    """Whether a verdict is bad, or the request failed or was rejected."""
    return (
        record.goodput is False
        or Verdict.BAD in record.slo.values()
        or record.outcome is Outcome.REJECTED
        or record.outcome in SERVER_FAULT
    )


def keeps(record: Finished, good_share: float) -> bool:
    """Whether the trace of the request is kept: bad ones always, good ones as the client sampled, else by share."""
    if record.trace_id is None or record.span_id is None:
        return False
    if bad(record):
        return True
    return in_share(record.trace_id, good_share) if record.parent_sampled is None else record.parent_sampled
