"""An SLO file and records for several tests."""

from typing import Any

from exporters.records.messages import Finished
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Endpoint, Outcome

SLOS = slo_file.loads(
    """
version: 1
period: 12h
scrape_interval: 1s
tenants: {header: x-tenant, allow: [team-a]}
classes:
  - {name: short, max_tokens: "<=100"}
  - {name: long, max_tokens: ">100"}
slos:
  - {name: ttft, classes: [short], signal: ttft, threshold: 333ms, objective: 95%}
  - {name: ttft_answer, classes: [long], signal: ttft_answer, threshold: 999ms, objective: 95%}
  - {name: tpot, classes: [long], signal: tpot, threshold: 77ms, objective: 95%}
  - {name: itl, classes: [long], signal: itl_p95, threshold: 222ms, objective: 95%}
  - {name: e2e, classes: [short], signal: e2e, threshold: 7s, objective: 95%}
  - {name: queue, classes: [short], signal: queue, threshold: 3s, objective: 95%}
  - {name: prefill, classes: [short], signal: prefill, threshold: 6s, objective: 95%}
  - {name: decode, classes: [short], signal: decode, threshold: 9s, objective: 95%}
  - {name: availability, classes: [short, long, other], signal: availability, objective: 99%}
"""
)


def finished(**fields: Any) -> Finished:
    """The record of a successful request, with other `fields`."""
    plain: dict[str, Any] = {
        "time": 1_700_000_000.25,
        "request_id": "r-1",
        "model": "tiny",
        "request_class": "short",
        "tenant": "team-a",
        "route": "/v1/chat/completions",
        "stream": True,
        "status": 200,
        "outcome": Outcome.OK,
        "metered": True,
        "e2e": 1.5,
        "api": Endpoint.CHAT_COMPLETIONS,
    }
    return Finished(**{**plain, **fields})
