"""Samples of ten engines, each behind its own sidecar: one is bad, and three are restarted one after the other."""

from collections.abc import Iterable, Iterator
from itertools import chain

from exporters.engines.condition.rule import State
from exporters.text.units import number
from exporters.vocabulary import signals

SCRAPE = 5
START = 1_700_000_000
END = START + 3600
ENGINES = tuple(range(10))
BAD = 6
"""The engine with failures, a queue, a full KV cache and another setting."""

CHANGED_AT = {2: START + 1500, 4: START + 1620, 8: START + 1740}
"""The times of a rolling change: each of these engines restarts, and is good afterwards."""

DOWN_BEFORE, DOWN_AFTER = 10, 20
"""Seconds between the end of an engine, the time of its change, which is its start, and its first response."""

CLASSES = ("siso", "silo", "liso", "lilo")
LOST = 7
"""Requests in flight that the restart of an engine kills, in each class."""


def instance(engine: int) -> str:
    return f"10.0.0.{engine + 1}:9464"


def address(engine: int) -> str:
    return f"10.0.0.{engine + 1}:8000"


def lines(engines: Iterable[int] = ENGINES, start: int = START) -> Iterator[str]:
    """The samples as OpenMetrics, grouped by series name."""
    families: dict[str, list[str]] = {}
    for engine in engines:
        totals: dict[str, float] = {}
        for at in range(start, END + 1, SCRAPE):
            for series, growth in _counters(engine, at).items():
                totals[series] = totals.get(series, 1000.0) + growth
            for series, value in {**totals, **_gauges(engine, at)}.items():
                families.setdefault(series.partition("{")[0], []).append(f"{series} {number(value)} {at}\n")
    return chain.from_iterable(families.values())


def _is_down(engine: int, at: int) -> bool:
    return engine in CHANGED_AT and -DOWN_BEFORE <= at - CHANGED_AT[engine] < DOWN_AFTER


def _share_bad(engine: int, at: int) -> float:
    if engine == BAD:
        return 0.6
    # the changed engines are worse than the others before the change
    return 0.2 if at < CHANGED_AT.get(engine, 0) else 0.0 if engine in CHANGED_AT else 0.02


def _counters(engine: int, at: int) -> dict[str, float]:
    """The growth of each counter since the last scrape."""
    of, down = f'instance="{instance(engine)}"', _is_down(engine, at)
    killed = engine in CHANGED_AT and at == CHANGED_AT[engine] - DOWN_BEFORE
    each, bad = (0.0, 0.0) if down else (10.0, 10.0 * _share_bad(engine, at))
    # a request that the restart kills is one bad event
    each, bad = (each + LOST, bad + LOST) if killed else (each, bad)
    growth: dict[str, float] = {}
    for name in CLASSES:
        who = f'model="org/m",class="{name}",{of}'
        tenant = f'{who},tenant="other"'
        ended = f'{tenant},stream="true",route="chat_completions"'
        slow = bad if engine == BAD else 0.0
        buckets = {"0.2": each - slow, "2.0": each - slow, "8.0": each, "+Inf": each}
        growth |= {
            f'{signals.REQUESTS.name}{{{ended},outcome="ok"}}': 0.0 if down else each,
            f'{signals.REQUESTS.name}{{{ended},outcome="upstream_error"}}': LOST if killed else 0.0,
            f"{signals.GOODPUT_EVENTS.name}{{{tenant}}}": each,
            f"{signals.GOODPUT_REQUESTS.name}{{{tenant}}}": each - bad,
            f'{signals.SLO_EVENTS.name}{{{tenant},slo="ttft"}}': each,
            f'{signals.SLO_BAD.name}{{{tenant},slo="ttft"}}': bad,
            f"{signals.PROMPT_TOKENS.name}{{{tenant}}}": 1000 * each,
            f"{signals.COMPLETION_TOKENS.name}{{{tenant}}}": 100 * each,
            f"{signals.CACHED_TOKENS.name}{{{tenant}}}": 500 * each,
            **{
                f'{histogram.bucket}{{{who},le="{le}"}}': count
                for histogram in (signals.TTFT, signals.QUEUE, signals.TPOT, signals.DURATION, signals.INTER_CHUNK)
                for le, count in buckets.items()
            },
        }
    rank = f'{of},engine="{address(engine)}",rank="0",model="org/m"'
    growth[f"{signals.ENGINE_CACHE_QUERIES.name}{{{rank}}}"] = 1000 * each
    growth[f"{signals.ENGINE_CACHE_HITS.name}{{{rank}}}"] = 500 * each
    return growth


def _gauges(engine: int, at: int) -> dict[str, float]:
    of, down, is_bad = f'instance="{instance(engine)}"', _is_down(engine, at), engine == BAD
    which, changed = f'{of},engine="{address(engine)}"', CHANGED_AT.get(engine, END)
    is_changed = at >= changed + DOWN_AFTER
    state = State.DOWN if down else State.SATURATED if is_bad else State.SERVING
    gauges: dict[str, float] = {
        f'up{{{of},job="vllm-slo-sidecar"}}': 1.0,
        f'{signals.SIDECAR_BUILD.name}{{{of},version="1"}}': 1.0,
        f"{signals.ENGINE_UP.name}{{{which}}}": float(not down),
        f'{signals.ENGINE_STATE.name}{{{which},state="{state}"}}': 1.0,
        f"{signals.REQUESTS_AT.name}{{{of}}}": 4.0,
        f"{signals.GOODPUT_AT.name}{{{of}}}": 1 - _share_bad(engine, at),
        **{
            f'{signals.IN_FLIGHT.name}{{{of},model="org/m",class="{name}",phase="{phase}"}}': 0.0 if down else 9.0
            for name in CLASSES
            for phase in signals.Phase
        },
    }
    if is_changed:
        setting = 'setting="enable_prefix_caching",old="False",new="True"'
        gauges[f"{signals.ENGINE_CONFIG_CHANGE.name}{{{which},{setting}}}"] = changed
    if not down:
        rank = f'{which},rank="0",model="org/m"'
        revision, caching = ("b" if is_changed else "a") * 12, "True" if is_changed else "False"
        gauges |= {
            f'{signals.ENGINE_INFO.name}{{{which},engine_type="vllm",version="0.33.0+simulated"}}': 1.0,
            f'{signals.ENGINE_CONFIG_INFO.name}{{{which},revision="{revision}"}}': 1.0,
            f'{signals.ENGINE_SETTING_INFO.name}{{{which},setting="enable_prefix_caching",value="{caching}"}}': 1.0,
            f'{signals.ENGINE_SETTING_INFO.name}{{{which},setting="max_num_seqs",value="{8 if is_bad else 256}"}}': 1.0,
            f"{signals.ENGINE_RUNNING.name}{{{rank}}}": 8.0 if is_bad else 20.0 + engine,
            f"{signals.ENGINE_WAITING.name}{{{rank}}}": 300.0 if is_bad else 0.0,
            f"{signals.ENGINE_KV_USAGE.name}{{{rank}}}": 0.97 if is_bad else 0.3 + engine / 50,
        }
    return gauges
