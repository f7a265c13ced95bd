"""The floor of TPOT by the roofline, at the running batch."""

from dataclasses import replace

from exporters.analysis.diagnose.evidence import EngineEvidence, Fact
from exporters.vocabulary.ceilings import Ceilings

DRAFTS = 3
"""Draft tokens per request whose cost is estimated, as in the examples of vLLM's documentation."""


def with_floor(engine: EngineEvidence, ceilings: Ceilings, origin: str) -> EngineEvidence:
    """Add the floors, if the running batch is known.

    A step gives each request of the batch a token, so it takes batch / tokens per second. With draft tokens it
    computes as many tokens as a batch of `DRAFTS + 1` times as many requests.
    """
    if not engine.running.value:
        return engine
    batch = max(1.0, engine.running.value)
    step = batch / ceilings.decode_of(batch)
    drafted = batch * (DRAFTS + 1)
    return replace(
        engine,
        tpot_floor=Fact(step, f"{origin} at batch {batch:,.0f}"),
        draft_floor=Fact(drafted / ceilings.decode_of(drafted) / step, f"{origin} at batch {drafted:,.0f}"),
    )
