"""What the sidecar exposes for each page; `python -m tests.contract.golden_pages` writes it anew."""

from pathlib import Path

from exporters.engines.engine_state import EngineState, collect
from exporters.engines.normalisation import Reading, read
from tests.contract.expositions import PAGES

GOLDEN = Path(__file__).parent / "golden"


def exposed(*readings: Reading) -> str:
    """Our series, sorted, without what depends on the time; of histograms only count and sum."""
    states = [EngineState(f"e{number}", up=True, reading=reading) for number, reading in enumerate(readings)]
    for state in states:
        state.watch.observe(state.reading.settings, None, 0.0)
    lines = []
    for family in collect(states, 0.0):
        for name, labels, value, *_ in family.samples:
            if not name.endswith(("_bucket", "_scrape_errors_total")):
                inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
                lines.append(f"{name}{{{inside}}} {value}")
    return "\n".join(sorted(lines)) + "\n"


def main() -> None:
    for name, text in PAGES.items():
        (GOLDEN / f"{name}.prom").write_text(exposed(read(text)))


if __name__ == "__main__":
    main()
