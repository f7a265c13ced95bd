"""A request is judged by the SLO file that it arrived under, and its record needs no SLO file."""

from pathlib import Path

from exporters.configuration.otlp_endpoints import Receiver
from exporters.slos import Measure
from tests.support.scripted_relay import CHAT, SLOS, post, staged, whole_stream

QUEUE = "  - {name: queue, classes: [short], signal: queue, threshold: 1s, objective: 95%}\n"


async def test_a_record_has_the_thresholds_of_the_times_in_the_engines_span(tmp_path: Path) -> None:
    spans = (Receiver(True, "127.0.0.1", 1),)
    async with staged(tmp_path, whole_stream, slo_file=SLOS + QUEUE, engine_spans=spans) as stage:
        await stage.ask(post(CHAT))
        assert (await stage.record()).engine_slos == {"queue": (Measure.QUEUE, 1.0)}
