"""The dashboard "Engine": load, limits, configuration, and missing metrics of engines."""

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import call, count_by, max_by, on, over, ratio, regex, select, sum_by
from alerts.promql.expression import Expression
from dashboards.boards import gpu_row
from dashboards.boards.board import Board
from dashboards.grafana import style, tables
from dashboards.grafana.layout import Row
from dashboards.grafana.ranking import highest, highest_first
from dashboards.grafana.style import GREY, WARN, Query
from dashboards.panels import engine_features
from dashboards.panels.engine_load import OfRanks, kv_cache_now, requests_now, restarts
from dashboards.queries.rates import (
    ENGINE_LABELS,
    PER_ENGINE,
    PER_RANK,
    RANK_LABELS,
    RATE,
    cache_hit_ratio,
    rate_by,
    ratio_by,
)
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label

_NO_ROOFLINE, _NO_START = "no roofline was given (--roofline)", "some engines do not report when they started"
_PER_ENGINE = "{{engine}}"
_NO_COUNTER = "some engines do not expose it, which the last row then says"
_OF_RANKS = OfRanks(tuple(RANK_LABELS), PER_RANK, _NO_COUNTER, _NO_COUNTER)
_REQUESTS_NOW = (
    "Requests that are running and waiting in the engine, of all ranks. Good: few wait. From the engines' metrics."
)
_COUNTED_AT_THE_END = (
    "Engines that count tokens only when a request ends show no increase during long responses, then a jump."
)

_OUTPUT_TOKENS = rate_by(signals.ENGINE_GENERATION_TOKENS, *ENGINE_LABELS)
_PREFILL_LIMIT = max_by(signals.ROOFLINE_PREFILL, [Label.INSTANCE])
_UPPER_LIMIT = "/^upper limit/", [style.fixed_colour(GREY)]


def rows(_: Plan) -> tuple[Row, ...]:
    return (
        Row(
            "Status",
            (
                up(),
                requests_now(_REQUESTS_NOW, may_be_empty="some engines expose no queue"),
                kv_cache_now("KV cache now", 4, ENGINE_LABELS, may_be_empty="some engines expose no KV cache"),
                started(),
                restarts(ENGINE_LABELS, WARN, may_be_empty=_NO_START, decimals=0),
                version(),
            ),
        ),
        Row("State", (by_state(), last_progress())),
        Row("Queue", (_OF_RANKS.running(), _OF_RANKS.waiting(), _OF_RANKS.preemptions())),
        Row(
            "KV cache and prefix cache",
            (_OF_RANKS.kv_cache(), kv_tokens(), _OF_RANKS.prefix_cache(), possible_prefix_cache()),
        ),
        Row("Throughput and roofline", (prefill(), decode(), roofline_share(), engine_features.prompt_sources())),
        gpu_row.row(),
        Row(
            "Admission, sleep state and LoRA adapters",
            (engine_features.rejections(), engine_features.sleep_state(), engine_features.lora_adapters()),
            is_collapsed=True,
        ),
        Row(
            "Speculation, KV offload and transfer",
            (
                speculation(),
                engine_features.external_prefix_cache(),
                engine_features.offload_bytes(),
                engine_features.offload_space(),
                engine_features.requests_in_fetch(),
                engine_features.transfer_bytes(),
                engine_features.transfer_time(),
                engine_features.transfer_failures(),
            ),
            is_collapsed=True,
        ),
        Row("Settings and missing signals", (settings(), missing_signals())),
    )


def up() -> stat.Panel:
    text = (
        "Number of engines whose last scrape by the sidecar succeeded (up), and of the others. Good: none is down; "
        "Fleet has their names. From the sidecars' metrics."
    )
    up = max_by(signals.ENGINE_UP, ENGINE_LABELS)
    return style.yes_and_no(PanelTitle.ENGINE, text, up, ("up", "down"), 3, 5)


def by_state() -> timeseries.Panel:
    text = (
        "Number of engines by state. Good: serving; saturated engines work, and requests wait for capacity. A wedged "
        "engine holds requests, or accepts connections, and does nothing. From the sidecars' metrics."
    )
    line = sum_by(signals.ENGINE_STATE, [Label.STATE]), "{{state}}"
    panel = style.stack(style.time_series_panel("Engines by state", text, units.Short, 12, line, height=6))
    return style.colour_by_name(panel, style.ENGINE_STATE_COLOURS)


def last_progress() -> timeseries.Panel:
    text = (
        "Time since each engine last worked: its counters moved, or output arrived at a relay. Good: near 0 while "
        "requests wait; an idle engine does not work. From the sidecars' metrics."
    )
    line = ((call("time") - max_by(signals.ENGINE_WORKED, ENGINE_LABELS)) / 60, PER_ENGINE)
    reason = "the engine has not worked since the sidecar started"
    return style.time_series_panel("Time since progress", text, style.MINUTES, 12, line, height=6, may_be_empty=reason)


def started() -> stat.Panel:
    text = "Start of the engine that started last. Good: the last planned restart. From the engines' metrics."
    panel = style.stat_panel("Started", text, style.AGE, 4, 5, may_be_empty=_NO_START)
    panel.text(style.text_size(16))
    return highest(panel, 1000 * max_by(signals.ENGINE_START_TIME, ENGINE_LABELS), _PER_ENGINE)


def version() -> stat.Panel:
    text = "Type and version of the engine. Good: one version. From the engines' metrics."
    engines = count_by(signals.ENGINE_INFO, [Label.ENGINE_TYPE, Label.VERSION])
    panel = style.stat_panel("Version", text, units.Short, 4, 5, may_be_empty="the engine is down")
    return highest_first(style.show_names(panel), (engines, "{{engine_type}} {{version}}"))


def kv_tokens() -> timeseries.Panel:
    text = (
        "Tokens in the KV cache of each rank, and its capacity (dotted), which is fixed at the start. In grey the "
        "upper limit beside the weights, if the sidecar has a roofline. Good: in use below the capacity. From the "
        "engines' metrics."
    )
    used, capacity = (max_by(each, RANK_LABELS) for each in (signals.ENGINE_KV_USAGE, signals.ENGINE_KV_CAPACITY))
    panel = style.time_series_panel(
        *("KV cache in tokens", text, units.Short, 8),
        (used * capacity, f"in use: {PER_RANK}"),
        (capacity, f"capacity: {PER_RANK}"),
        (max_by(signals.ROOFLINE_KV_TOKENS, [Label.INSTANCE]), "upper limit: {{instance}}"),
        may_be_empty="some engines report no capacity, and the sidecar has no roofline",
    )
    return panel.override_by_regexp("/^capacity/", style.DOTTED).override_by_regexp(*_UPPER_LIMIT)


def possible_prefix_cache() -> timeseries.Panel:
    text = (
        "possible: share of prompt tokens whose beginning another request of the last hour had, estimated from "
        "characters and counted when requests end. actual: share found in the engine's prefix cache. Good: actual "
        "close to possible; otherwise a larger or shared cache saves prefill. From the sidecars' counters and the "
        "engines' metrics."
    )
    possible = ratio_by(signals.SHAREABLE_PROMPT_TOKENS, signals.PROMPT_TOKENS, Label.INSTANCE)
    return style.ratio_panel(
        *("Prefix cache: possible and actual", text, 24),
        (possible, "possible: {{instance}}"),
        (cache_hit_ratio(Label.INSTANCE), "actual: {{instance}}"),
        may_be_empty="possible needs the sidecar's flag --log-prefix-hashes",
    )


def prefill() -> timeseries.Panel:
    text = (
        "Prompt tokens per second that were computed, not found in the prefix cache or an external one. The grey "
        f"line is the roofline, if the sidecar has one. Good: below the roofline. {_COUNTED_AT_THE_END} From the "
        "engines' metrics."
    )
    limit = (_PREFILL_LIMIT, "upper limit: {{instance}}")
    return _roofline_panel("Prompt tokens computed", text, _computed_prompt_tokens(), limit)


def decode() -> timeseries.Panel:
    text = (
        "Output tokens per second of all requests together. The grey lines are the roofline by batch size; compare "
        f"with that of the running batch. Good: close to it at a full batch. {_COUNTED_AT_THE_END} From the engines' "
        "metrics."
    )
    limits = max_by(signals.ROOFLINE_DECODE, [Label.INSTANCE, Label.BATCH])
    limit = (limits, "upper limit: batch {{batch}} at {{instance}}")
    return _roofline_panel(PanelTitle.ENGINE_OUTPUT_TOKENS, text, _OUTPUT_TOKENS, limit)


def roofline_share() -> timeseries.Panel:
    text = (
        "Measured tokens per second as a share of the roofline: decode of that for the requests that run (dotted: "
        "prefill, prompt tokens computed). Both use the same GPUs, so their sum is the share in use. Good: the sum is "
        f"high under load; far below 100 % with a full queue, something else limits the engine. {_COUNTED_AT_THE_END} "
        "From the sidecars' and the engines' metrics."
    )
    # at 0 while nothing runs, as is the measured rate
    limit = max_by(over("avg_over_time", signals.ROOFLINE_RUNNING, RATE), ENGINE_LABELS)
    prefill = _computed_prompt_tokens().binary("/", _PREFILL_LIMIT, on(Label.INSTANCE, left=()))
    panel = style.ratio_panel(
        *("Roofline share", text, 12),
        (ratio(_OUTPUT_TOKENS, limit), f"decode: {PER_ENGINE}"),
        (prefill, f"prefill: {PER_ENGINE}"),
        may_be_empty=f"{_NO_ROOFLINE}, or the engine exposes no running requests",
    )
    return panel.override_by_regexp("/^prefill/", style.DOTTED)


def speculation() -> timeseries.Panel:
    text = (
        "Share of the proposed tokens of speculative decoding that were accepted. Good: high; a low share wastes "
        "compute. From the engines' metrics."
    )
    return style.ratio_panel(
        *("Speculative tokens accepted", text, 12),
        (ratio_by(signals.ENGINE_SPEC_ACCEPTED, signals.ENGINE_SPEC_DRAFTED, *ENGINE_LABELS), PER_ENGINE),
        may_be_empty="speculative decoding is off, or the engine does not count it",
    )


def settings() -> table.Panel:
    text = (
        "Settings that the engine reports, except None, and those declared with vllm-slo flip. Good: as deployed. "
        "From the engines' metrics."
    )
    series = signals.ENGINE_SETTING_INFO
    known = select(series).unless(select(series, regex(Label.VALUE, "None")))
    return tables.list_labels(
        style.table_panel("Settings", text, units.String, 24, 12, may_be_empty="the engine reports no setting"),
        max_by(known, [Label.SETTING, Label.VALUE, *ENGINE_LABELS]),
        {Label.SETTING: "Setting", Label.VALUE: "Value", Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"},
        widest=(Label.ENGINE,),
    )


def missing_signals() -> table.Panel:
    text = (
        "Series that the engine does not expose: its version does not have them, a flag is off, or it has no such "
        "feature. Good: none that you need. From the engines' metrics."
    )
    reason = "it exposes everything, or is down"
    return tables.list_labels(
        style.table_panel("Missing signals", text, units.String, 24, 8, may_be_empty=reason),
        max_by(signals.ENGINE_SIGNAL_EXPOSED, [Label.SIGNAL, *ENGINE_LABELS]).binary("==", 0),
        {Label.SIGNAL: "Series", Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"},
        widest=(Label.SIGNAL,),
    )


def _computed_prompt_tokens() -> Expression:
    prompt, hits, external_hits = (
        rate_by(series, *ENGINE_LABELS)
        for series in (signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_CACHE_HITS, signals.ENGINE_EXTERNAL_CACHE_HITS)
    )
    cached = hits.or_(0 * prompt) + external_hits.or_(0 * prompt)
    # the counters are read at different times, so the difference may be negative
    return call("clamp_min", prompt - cached, 0)


def _roofline_panel(title: str, text: str, measured: Expression, limit: Query) -> timeseries.Panel:
    panel = style.time_series_panel(
        *(title, text, "tokens/s", 12), (measured, PER_ENGINE), limit, may_be_empty=_NO_ROOFLINE
    )
    return panel.override_by_regexp(*_UPPER_LIMIT)


BOARD = Board(
    uid=DashboardUid.ENGINE,
    title="Engine",
    description="One engine's batch, queue, KV cache, throughput and settings, rank by rank, and its GPUs.",
    rows=rows,
)
