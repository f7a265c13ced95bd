"""The series of the sidecar for each exposition; `python -m tests.contract.golden_pages` writes the files."""

from pathlib import Path

from exporters.engines.normalisation import EngineMetrics, normalise
from exporters.engines.state import EngineState, collect
from tests.contract.expositions import PAGES

GOLDEN = Path(__file__).parent / "golden"


def exposed(*engines: EngineMetrics) -> str:
    """The exposed series, sorted, without buckets and error counters."""
    states = [EngineState(f"e{number}", up=True, metrics=metrics) for number, metrics in enumerate(engines)]
    for state in states:
        state.watch.observe(state.metrics.settings, None, 0.0)
    lines = []
    for family in collect(states, 0.0):
        for name, labels, value, *_ in family.samples:
            if not name.endswith(("_bucket", "_scrape_errors_total")):
                label_text = ",".join(f'{key}="{text}"' for key, text in labels.items())
                lines.append(f"{name}{{{label_text}}} {value}")
    return "\n".join(sorted(lines)) + "\n"


def main() -> None:
    for name, text in PAGES.items():
        (GOLDEN / f"{name}.prom").write_text(exposed(normalise(text)))


if __name__ == "__main__":
    main()
