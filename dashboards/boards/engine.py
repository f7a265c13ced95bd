"""The dashboard "Engine": load, limits, configuration, and missing metrics of engines."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import units

from alerts.engine_alerts import KV_CACHE_FULL
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql_text import max_by, rate, ratio, sum_by
from dashboards import style, tables
from dashboards.board import Board
from dashboards.label_selectors import (
    ENGINE_LABELS,
    PER_ENGINE,
    PER_RANK,
    RANK_LABELS,
    RATE,
    cache_hit_ratio,
    select_engine,
    select_sidecar,
)
from dashboards.layout import Row
from dashboards.panels import engine_features, worst_requests
from dashboards.panels.engine_load import kv_cache_panel
from dashboards.ranked_values import highest_first, lowest_first
from dashboards.style import BAD, GOOD, GREY, NO_TRAFFIC, WARN, describe, query
from exporters import signals
from exporters.signals import Label, Signal
from exporters.slos import SloFile

_NO_ENGINE, _NOT_EXPOSED = "no engine", "not exposed"
_PER_ENGINE = "{{engine}}"
_NO_COUNTER = "some engines do not expose it, which the last row then says"
_COUNTED_AT_THE_END = (
    "Engines that count tokens only when a request ends show no increase during long responses, then a jump."
)


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row(
            "Status",
            (up(), requests_now(), kv_cache_now(), uptime(), restarts(), scrape_age(spec), version()),
        ),
        Row("Bad requests", (worst_requests.worst_requests(spec),)),
        Row("Queue", (running(), waiting(), preemptions())),
        Row("KV cache and prefix cache", (kv_cache(), kv_tokens(), prefix_cache(), possible_prefix_cache())),
        Row("Throughput and roofline", (prefill(), decode(), roofline_share(), engine_features.prompt_sources())),
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
    text = "Whether the sidecar's last scrape of each engine succeeded. Good: up. From the sidecars' metrics."
    panel = style.stat_panel(PanelTitle.ENGINE, text, units.NoUnit, 4, 5).thresholds(style.thresholds(BAD, (1, GOOD)))
    style.if_absent(panel, _NO_ENGINE, *style.UP_DOWN_MAPPINGS)
    return lowest_first(panel, (_max(ENGINE_LABELS, signals.ENGINE_UP), _PER_ENGINE))


def requests_now() -> stat.Panel:
    text = describe(
        "Requests that are running and waiting in the engine, of all ranks. Good: few wait. From the engines' metrics.",
        may_be_empty="some engines expose no queue",
    )
    panel = style.stat_panel("Requests in the engine", text, style.COUNT, 4, 5).decimals(0)
    # one below the other, as the panel is narrow
    panel.orientation(common_model.VizOrientation.HORIZONTAL)
    for state, series in (("running", signals.ENGINE_RUNNING), ("waiting", signals.ENGINE_WAITING)):
        panel.with_target(query(f"sum ({select_engine(series)})", state, instant=True))
    return panel


def kv_cache_now() -> stat.Panel:
    text = describe(
        "Share of the KV cache in use, of the fullest rank. Good: below the threshold of the alert (orange). From the "
        "engines' metrics.",
        may_be_empty="some engines expose no KV cache",
    )
    panel = (
        style.if_absent(style.stat_panel("KV cache in use", text, units.PercentUnit, 3, 5), _NOT_EXPOSED)
        .decimals(1)
        .thresholds(style.thresholds(GOOD, (KV_CACHE_FULL, WARN)))
    )
    return highest_first(panel, (_max(ENGINE_LABELS, signals.ENGINE_KV_USAGE), _PER_ENGINE))


def uptime() -> stat.Panel:
    text = describe(
        "Time since the process of the engine started. Good: as long as since the last planned restart. From the "
        "engines' metrics.",
        may_be_empty="some engines do not report when they started",
    )
    panel = style.stat_panel("Uptime", text, units.Seconds, 3, 5)
    return lowest_first(panel, (f"time() - {_max(ENGINE_LABELS, signals.ENGINE_START_TIME)}", _PER_ENGINE))


def restarts() -> stat.Panel:
    text = describe(
        "Restarts of the engine in the time range; each loses the open requests and the prefix cache. Good: 0. From "
        "the engines' metrics.",
        may_be_empty="some engines do not report when they started",
    )
    starts = max_by(f"changes({select_engine(signals.ENGINE_START_TIME)}[$__range])", ENGINE_LABELS)
    panel = (
        style.if_absent(style.stat_panel(PanelTitle.ENGINE_RESTARTS, text, style.COUNT, 3, 5), _NOT_EXPOSED)
        .decimals(0)
        .thresholds(style.thresholds(GOOD, (1, WARN)))
    )
    return highest_first(panel, (starts, _PER_ENGINE))


def scrape_age(spec: SloFile) -> stat.Panel:
    text = (
        "Time since the sidecar's last successful scrape of the engine; everything below is as old. Good: a few "
        "seconds; vermilion from the age at which the engine counts as down. From the sidecars' metrics."
    )
    panel = (
        style.if_absent(style.stat_panel("Last scrape age", text, units.Seconds, 3, 5), _NO_ENGINE)
        .decimals(1)
        .thresholds(style.thresholds(GOOD, (Plan.of(spec).down_after, BAD)))
    )
    return highest_first(panel, (_max(ENGINE_LABELS, signals.ENGINE_SCRAPE_AGE), _PER_ENGINE))


def version() -> stat.Panel:
    text = describe(
        "Type and version of the engine. Good: one version. From the engines' metrics.",
        may_be_empty="the engine is down",
    )
    engines = f"count by ({Label.ENGINE_TYPE}, {Label.VERSION}) ({select_engine(signals.ENGINE_INFO)})"
    panel = (
        style.stat_panel(PanelTitle.ENGINE_VERSION, text, units.Short, 4, 5)
        .text_mode(common_model.BigValueTextMode.NAME)
        # a version is longer than a number
        .text(common.VizTextDisplayOptions().title_size(14).value_size(14))
    )
    return highest_first(panel, (engines, "{{engine_type}} {{version}}"))


def running() -> timeseries.Panel:
    text = describe(
        "Requests in the running batch of each rank. Good: below `max_num_seqs`, the limit at which the line becomes "
        "flat. From the engines' metrics.",
        may_be_empty=_NO_COUNTER,
    )
    return style.time_series_panel("Running", text, units.Short, 8).with_target(
        query(sum_by(select_engine(signals.ENGINE_RUNNING), RANK_LABELS), PER_RANK)
    )


def waiting() -> timeseries.Panel:
    text = describe(
        "Requests in the queue of each rank. Deferred requests (dotted) wait for a LoRA slot or a KV transfer (vLLM "
        "from 0.20 on); the others wait for a place in the batch or for KV cache. Good: close to 0. From the engines' "
        "metrics.",
        may_be_empty=_NO_COUNTER,
    )
    return (
        style.time_series_panel(PanelTitle.WAITING, text, units.Short, 8)
        .with_target(query(sum_by(select_engine(signals.ENGINE_WAITING), RANK_LABELS), f"waiting: {PER_RANK}"))
        .with_target(query(sum_by(select_engine(signals.ENGINE_DEFERRED), RANK_LABELS), f"deferred: {PER_RANK}"))
        .override_by_regexp("/^deferred/", style.DOTTED)
    )


def preemptions() -> timeseries.Panel:
    text = describe(
        "Running requests preempted per second, by rank, because the KV cache was full. Good: 0. From the engines' "
        "metrics.",
        may_be_empty=_NO_COUNTER,
    )
    return style.time_series_panel("Preemptions", text, style.PER_SECOND, 8).with_target(
        query(_rate(signals.ENGINE_PREEMPTIONS, RANK_LABELS), PER_RANK)
    )


def kv_cache() -> timeseries.Panel:
    text = (
        "Share of the KV cache in use, by rank. Near 100 % new requests queue and running ones are preempted. Good: "
        "below the line. From the engines' metrics."
    )
    return kv_cache_panel(PanelTitle.KV_CACHE, text, _max(RANK_LABELS, signals.ENGINE_KV_USAGE), PER_RANK)


def kv_tokens() -> timeseries.Panel:
    text = describe(
        "Tokens in the KV cache of each rank, and its capacity (dotted), which is fixed at the start. In grey the "
        "upper limit beside the weights, if the sidecar has a roofline. Good: in use below the capacity. From the "
        "engines' metrics.",
        may_be_empty="some engines report no capacity, and the sidecar has no roofline",
    )
    used, capacity = _max(RANK_LABELS, signals.ENGINE_KV_USAGE), _max(RANK_LABELS, signals.ENGINE_KV_CAPACITY)
    return (
        style.time_series_panel("KV cache in tokens", text, units.Short, 8)
        .with_target(query(f"{used} * {capacity}", f"in use: {PER_RANK}"))
        .with_target(query(capacity, f"capacity: {PER_RANK}"))
        .with_target(query(_roofline_query(signals.ROOFLINE_KV_TOKENS), "upper limit: {{instance}}"))
        .override_by_regexp("/^capacity/", style.DOTTED)
        .override_by_regexp("/^upper limit/", [style.fixed_colour(GREY)])
    )


def prefix_cache() -> timeseries.Panel:
    text = describe(
        "Share of prompt tokens found in the prefix cache of each rank. Good: as high as before; a drop costs "
        f"prefill. Gaps are {NO_TRAFFIC}. From the engines' metrics.",
        may_be_empty="prefix caching is off, or the engine does not count it",
    )
    return (
        style.ratio_panel(PanelTitle.PREFIX_CACHE, text, 8)
        .with_target(query(cache_hit_ratio(select_engine, RANK_LABELS), PER_RANK))
        .no_value(NO_TRAFFIC)
    )


def possible_prefix_cache() -> timeseries.Panel:
    text = describe(
        "possible: share of prompt tokens whose beginning another request of the last hour had, estimated from "
        "characters and counted when requests end. actual: share found in the engine's prefix cache. Good: actual "
        "close to possible; otherwise a larger or shared cache saves prefill. From the sidecars' counters and the "
        "engines' metrics.",
        may_be_empty="possible needs the sidecar's flag --log-prefix-hashes",
    )
    shareable, prompt = (
        sum_by(rate(select_sidecar(series), RATE), [Label.INSTANCE])
        for series in (signals.SHAREABLE_PROMPT_TOKENS, signals.PROMPT_TOKENS)
    )
    panel = style.ratio_panel("Prefix cache: possible and actual", text, 24).no_value(NO_TRAFFIC)
    panel.with_target(query(ratio(shareable, prompt), "possible: {{instance}}"))
    return panel.with_target(query(cache_hit_ratio(select_engine, [Label.INSTANCE]), "actual: {{instance}}"))


def prefill() -> timeseries.Panel:
    text = describe(
        "Prompt tokens per second that were computed, not found in the prefix cache or an external one. The grey "
        f"line is the roofline, if the sidecar has one. Good: below the roofline. {_COUNTED_AT_THE_END} From the "
        "engines' metrics.",
        may_be_empty="no roofline was given (--roofline)",
    )
    return _roofline_panel("Prompt tokens computed", text, _computed_prompt_tokens()).with_target(
        query(_roofline_query(signals.ROOFLINE_PREFILL), "upper limit: {{instance}}")
    )


def decode() -> timeseries.Panel:
    text = describe(
        "Output tokens per second of all requests together. The grey lines are the roofline by batch size; compare "
        f"with that of the running batch. Good: close to it at a full batch. {_COUNTED_AT_THE_END} From the engines' "
        "metrics.",
        may_be_empty="no roofline was given (--roofline)",
    )
    return _roofline_panel(
        PanelTitle.ENGINE_OUTPUT_TOKENS, text, _rate(signals.ENGINE_GENERATION_TOKENS, ENGINE_LABELS)
    ).with_target(
        query(_roofline_query(signals.ROOFLINE_DECODE, Label.BATCH), "upper limit: batch {{batch}} at {{instance}}")
    )


def roofline_share() -> timeseries.Panel:
    text = describe(
        "Measured tokens per second as a share of the roofline: decode of that for the requests that run (dotted: "
        "prefill, prompt tokens computed). Both use the same GPUs, so their sum is the share in use. Good: the sum is "
        f"high under load; far below 100 % with a full queue, something else limits the engine. {_COUNTED_AT_THE_END} "
        "From the sidecars' and the engines' metrics.",
        may_be_empty="no roofline was given (--roofline), or the engine exposes no running requests",
    )
    # at 0 while nothing runs, as is the measured rate
    limit = max_by(f"avg_over_time({select_engine(signals.ROOFLINE_RUNNING)}[{RATE}])", ENGINE_LABELS)
    prefill_limit = f"on ({Label.INSTANCE}) group_left () {_roofline_query(signals.ROOFLINE_PREFILL)}"
    panel = style.ratio_panel("Roofline share", text, 12).no_value("no roofline")
    panel.with_target(
        query(ratio(_rate(signals.ENGINE_GENERATION_TOKENS, ENGINE_LABELS), limit), f"decode: {PER_ENGINE}")
    )
    panel.with_target(query(f"{_computed_prompt_tokens()} / {prefill_limit}", f"prefill: {PER_ENGINE}"))
    return panel.override_by_regexp("/^prefill/", style.DOTTED)


def speculation() -> timeseries.Panel:
    text = describe(
        "Share of the proposed tokens of speculative decoding that were accepted. Good: high; a low share wastes "
        "compute. From the engines' metrics.",
        may_be_empty="speculative decoding is off, or the engine does not count it",
    )
    accepted, drafted = (
        _rate(series, ENGINE_LABELS) for series in (signals.ENGINE_SPEC_ACCEPTED, signals.ENGINE_SPEC_DRAFTED)
    )
    return (
        style.ratio_panel("Speculative tokens accepted", text, 12)
        .with_target(query(ratio(accepted, drafted), PER_ENGINE))
        .no_value("no speculation")
    )


def settings() -> table.Panel:
    text = describe(
        "Settings that the engine reports, except None, and those declared with vllm-slo flip. Good: as deployed. "
        "From the engines' metrics.",
        may_be_empty="the engine reports no setting",
    )
    settings_series = select_engine(signals.ENGINE_SETTING_INFO)
    return tables.list_labels(
        style.table_panel("Settings", text, units.String, 13, 12),
        f"max by ({Label.SETTING}, {Label.VALUE}, {', '.join(ENGINE_LABELS)}) "
        f"({settings_series} unless {select_engine(signals.ENGINE_SETTING_INFO, {Label.VALUE: 'None'})})",
        {Label.SETTING: "Setting", Label.VALUE: "Value", Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"},
        widest=(Label.ENGINE,),
    )


def missing_signals() -> table.Panel:
    text = describe(
        "Series that the engine does not expose: its version does not have them, a flag is off, or it has no such "
        "feature. Good: none that you need. From the engines' metrics.",
        may_be_empty="it exposes everything, or is down",
    )
    return tables.list_labels(
        style.table_panel("Missing signals", text, units.String, 11, 12),
        f"{max_by(select_engine(signals.ENGINE_SIGNAL_EXPOSED), [Label.SIGNAL, *ENGINE_LABELS])} == 0",
        {Label.SIGNAL: "Series", Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"},
        widest=(Label.SIGNAL,),
    )


def _computed_prompt_tokens() -> str:
    prompt, hits, external_hits = (
        _rate(series, ENGINE_LABELS)
        for series in (signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_CACHE_HITS, signals.ENGINE_EXTERNAL_CACHE_HITS)
    )
    cached = f"(({hits} or 0 * {prompt}) + ({external_hits} or 0 * {prompt}))"
    # the counters are read at different times, so the difference may be negative
    return f"clamp_min({prompt} - {cached}, 0)"


def _roofline_panel(title: str, text: str, measured: str) -> timeseries.Panel:
    return (
        style.time_series_panel(title, text, "tokens/s", 12)
        .with_target(query(measured, PER_ENGINE))
        .override_by_regexp("/^upper limit/", [style.fixed_colour(GREY)])
    )


def _max(by: Sequence[Label], series: Signal) -> str:
    return max_by(select_engine(series), by)


def _rate(counter: Signal, by: Sequence[Label]) -> str:
    return sum_by(rate(select_engine(counter), RATE), by)


def _roofline_query(series: Signal, *by: Label) -> str:
    return max_by(select_sidecar(series), [Label.INSTANCE, *by])


BOARD = Board(
    uid=DashboardUid.ENGINE,
    title="Engine",
    description="One engine's batch, queue, KV cache, throughput and settings, rank by rank.",
    shows_request_log=True,
    rows=rows,
)
