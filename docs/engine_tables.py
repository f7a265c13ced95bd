"""The tables of `docs/reference/engines.md`, from the signal table."""

from collections.abc import Iterator

from exporters.engines.signal_table import ENGINE_TYPES, RAY, SIGNALS
from exporters.engines.table_schema import CapacityGauges, CapacityLabels, EngineType, Family
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal

_LORA_NOTE = (
    "the label `running_lora_adapters` of the newest series, because older series stay exposed; V1 adds an adapter at "
    "the first output of a request. Not read with several API servers"
)


def signal_tables() -> str:
    """Markdown tables: the signals of each engine type, then their families."""
    head = ["signal", *(engine.name for engine in ENGINE_TYPES)]
    lines = [_cells(head), _cells(["---"] * len(head))]
    lines += [_cells([f"`{signal.name}`", *(_has(engine, signal) for engine in ENGINE_TYPES)]) for signal in SIGNALS]
    growth = ["during a request" if engine.counts_live else "when a request ends" for engine in ENGINE_TYPES]
    lines += [_cells(["token counters grow", *growth])]
    # Ray has the rows of vLLM.
    for engine in (engine for engine in ENGINE_TYPES if engine is not RAY):
        lines += ["", f"### {engine.name}", "", _cells(["signal", "from", "difference"]), _cells(["---"] * 3)]
        lines += [_cells([f"`{signal}`", families, note]) for signal, families, note in _rows(engine)]
    return "\n".join(lines) + "\n"


def _cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _has(engine: EngineType, signal: Signal) -> str:
    listed = any(row.signal is signal for row in engine.rows)
    capacity = signal is signals.ENGINE_KV_CAPACITY and engine.capacity is not None
    lora = signal in (signals.ENGINE_LORA_RUNNING, signals.ENGINE_LORA_LIMIT) and engine.lora_info is not None
    return "yes" if listed or capacity or lora else ""


def _rows(engine: EngineType) -> Iterator[tuple[str, str, str]]:
    for row in engine.rows:
        yield row.signal.name, ", else ".join(_family(family) for family in row.families), row.note
    capacity = signals.ENGINE_KV_CAPACITY.name
    match engine.capacity:
        case CapacityGauges(names):
            yield capacity, " x ".join(f"`{name}`" for name in names), ""
        case CapacityLabels(name):
            yield capacity, f"labels of `{name}`", "`kv_cache_size_tokens` since 0.24, else blocks x block size"
    if engine.lora_info is not None:
        source = f"labels of `{engine.lora_info}`"
        yield signals.ENGINE_LORA_RUNNING.name, source, _LORA_NOTE
        yield signals.ENGINE_LORA_LIMIT.name, source, "`--max-loras`"


def _family(family: Family) -> str:
    versions = [f"{text} {version}" for text, version in (("from", family.since), ("to", family.until)) if version]
    only = '{{{}="{}"}}'.format(*family.only) if family.only else ""
    return f"`{family.name}{only}`" + (f" ({' '.join(versions)})" if versions else "")
