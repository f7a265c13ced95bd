"""The README's tables of engines and signals, from the table itself: `python -m exporters.engines.generated_docs`."""

from collections.abc import Iterator

from exporters import signals
from exporters.engines.signal_table import ENGINES, RAY, SIGNALS
from exporters.engines.table_rows import Blocks, Engine, Family, Labelled, Stated
from exporters.signals import Signal


def support() -> str:
    """Which engine has what, then by which families, in Markdown."""
    head = ["signal", *(engine.type for engine in ENGINES)]
    lines = [_row(head), _row(["---"] * len(head))]
    lines += [_row([f"`{signal.name}`", *(_has(engine, signal) for engine in ENGINES)]) for signal in SIGNALS]
    lines += [_row(["token counters move", *(_pace(engine) for engine in ENGINES)])]
    for engine in (engine for engine in ENGINES if engine is not RAY):  # whose rows are vLLM's
        lines += ["", f"### {engine.type}", "", _row(["signal", "from", "what differs"]), _row(["---"] * 3)]
        lines += [_row([f"`{signal}`", families, note]) for signal, families, note in _rows(engine)]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _has(engine: Engine, signal: Signal) -> str:
    capacity = signal is signals.ENGINE_KV_CAPACITY and engine.capacity is not None
    return "yes" if capacity or any(row.signal is signal for row in engine.rows) else ""


def _pace(engine: Engine) -> str:
    return "as it works" if engine.counts_live else "when a request ends"


def _rows(engine: Engine) -> Iterator[tuple[str, str, str]]:
    for row in engine.rows:
        yield row.signal.name, ", else ".join(_family(family) for family in row.families), row.note
    capacity = signals.ENGINE_KV_CAPACITY.name
    match engine.capacity:
        case Stated(name):
            yield capacity, f"`{name}`", ""
        case Blocks(blocks, tokens_per_block):
            yield capacity, f"`{blocks}` x `{tokens_per_block}`", ""
        case Labelled(name):
            yield capacity, f"labels of `{name}`", "`kv_cache_size_tokens` since 0.24, else blocks x block size"


def _family(family: Family) -> str:
    seen = [f"{word} {version}" for word, version in (("from", family.since), ("to", family.until)) if version]
    only = '{{{}="{}"}}'.format(*family.only) if family.only else ""
    return f"`{family.name}{only}`" + (f" ({' '.join(seen)})" if seen else "")


if __name__ == "__main__":
    print(support(), end="")
