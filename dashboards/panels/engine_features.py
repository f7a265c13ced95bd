"""Panels on optional features of engines: queue limits, sleep mode, LoRA, external caches, KV transfer and offload."""

from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import units

from alerts.promql_text import max_by, quantile, rate, ratio, sum_by
from dashboards import style
from dashboards.label_selectors import ENGINE_LABELS, PER_ENGINE, PER_RANK, RANK_LABELS, RATE, select_engine
from dashboards.ranked_values import highest_first
from dashboards.style import GREY, describe, query
from exporters import signals
from exporters.signals import Label, Signal

_ENGINE = {Label.INSTANCE: "$instance", Label.ENGINE: "$engine"}
_NO_TRANSFER = "the engine transfers no KV cache (in vLLM with the connector NIXL or Mooncake), or does not expose it"


def rejections() -> timeseries.Panel:
    text = describe(
        "Rejections per second by the limit that was reached, such as max_num_queued_reqs. The client gets status 503 "
        "(TGI: 429), and the outcome is rejected. Good: 0. From the engines' metrics.",
        may_be_empty="the engine does not expose rejections: vLLM does from 0.32 on",
    )
    return style.time_series_panel("Admission rejections", text, units.RequestsPerSecond, 8).with_target(
        query(_rate(signals.ENGINE_REJECTIONS, Label.REASON, *ENGINE_LABELS), f"{{{{reason}}}}: {PER_ENGINE}")
    )


def sleep_state() -> stat.Panel:
    text = describe(
        "Sleep state of each rank: awake, weights_offloaded (sleep level 1) or discard_all (sleep level 2). A "
        "sleeping engine processes no requests. Good: awake. From the engines' metrics.",
        may_be_empty="the engine does not expose its sleep state: vLLM does from 0.11.2 on",
    )
    states = max_by(select_engine(signals.ENGINE_SLEEP_STATE), [Label.STATE, *RANK_LABELS])
    panel = (
        style.stat_panel("Sleep state", text, units.NoUnit, 8, 9)
        .text_mode(common_model.BigValueTextMode.NAME)
        # a name is longer than a number
        .text(common.VizTextDisplayOptions().title_size(14).value_size(14))
    )
    return highest_first(panel, (f"{states} == 1", f"{{{{state}}}}: {PER_RANK}"))


def lora_adapters() -> timeseries.Panel:
    text = describe(
        "Adapters with running requests, and in grey the maximum of one batch (--max-loras). At the limit, requests "
        "for other adapters wait; Waiting by reason shows them as deferred. Good: below the limit. From the engines' "
        "metrics.",
        may_be_empty="LoRA is off, the engine does not expose it, or vLLM has several API servers",
    )
    running, limit = (
        max_by(select_engine(series), ENGINE_LABELS)
        for series in (signals.ENGINE_LORA_RUNNING, signals.ENGINE_LORA_LIMIT)
    )
    return (
        style.time_series_panel("LoRA adapters", text, units.Short, 8)
        .with_target(query(running, f"running: {PER_ENGINE}"))
        .with_target(query(limit, f"limit: {PER_ENGINE}"))
        .override_by_regexp("/^limit/", [style.fixed_colour(GREY)])
    )


def prompt_sources() -> timeseries.Panel:
    text = describe(
        "Prompt tokens per second by source: computed by the engine (local_compute), found in its prefix cache "
        "(local_cache_hit), or received through a KV connector (external_kv_transfer). Good: few are computed. From "
        "the engines' metrics.",
        may_be_empty="the engine does not expose sources: vLLM does from 0.16 on",
    )
    return style.time_series_panel("Prompt tokens by source", text, "tokens/s", 12).with_target(
        query(
            _rate(signals.ENGINE_PROMPT_TOKENS_BY_SOURCE, Label.SOURCE, *ENGINE_LABELS), f"{{{{source}}}}: {PER_ENGINE}"
        )
    )


def external_prefix_cache() -> timeseries.Panel:
    text = describe(
        "Share of the prompt tokens looked up through a KV connector that were found there, by rank. Good: as high as "
        "before; a hit saves prefill. From the engines' metrics.",
        may_be_empty="no KV connector is configured, there is no traffic, or the engine does not expose it",
    )
    hits, queries = (
        _rate(series, *RANK_LABELS)
        for series in (signals.ENGINE_EXTERNAL_CACHE_HITS, signals.ENGINE_EXTERNAL_CACHE_QUERIES)
    )
    return (
        style.ratio_panel("External prefix cache hits", text, 12)
        .with_target(query(ratio(hits, queries), PER_RANK))
        .no_value("no queries")
    )


def offload_bytes() -> timeseries.Panel:
    text = describe(
        "Bytes per second from the GPU to offload storage (stored) and back (loaded), by rank. Loaded KV cache is not "
        "computed again. Good: some of what is stored is loaded. From the engines' metrics.",
        may_be_empty="KV offload is off, or the engine does not expose it",
    )
    panel = style.time_series_panel("KV offload", text, units.BytesPerSecondSI, 12)
    for direction, series in (("stored", signals.ENGINE_OFFLOAD_STORED), ("loaded", signals.ENGINE_OFFLOAD_LOADED)):
        panel.with_target(query(_rate(series, *RANK_LABELS), f"{direction}: {PER_RANK}"))
    return panel


def offload_space() -> timeseries.Panel:
    text = describe(
        "Share of the offload space in CPU memory that active transfers use, by rank. Near 100 % the engine drops "
        "stores. Good: far below 100 %. From the engines' metrics.",
        may_be_empty="KV offload is off, or the engine does not expose it: vLLM does from 0.24 on",
    )
    return style.ratio_panel("KV offload space in transfer", text, 12).with_target(
        query(max_by(select_engine(signals.ENGINE_OFFLOAD_PINNED), RANK_LABELS), PER_RANK)
    )


def requests_in_fetch() -> timeseries.Panel:
    text = describe(
        "Waiting requests that load KV cache from another engine, by stage: the load has not started, is in progress, "
        "or is complete and the request is not yet running. Good: few. From the engines' metrics.",
        may_be_empty="the engine loads no KV cache through a connector, or does not expose it: vLLM does from 0.32 on",
    )
    fetching = sum_by(select_engine(signals.ENGINE_KV_FETCH), [Label.STAGE, *ENGINE_LABELS])
    return style.time_series_panel("Requests in KV load", text, units.Short, 12).with_target(
        query(fetching, f"{{{{stage}}}}: {PER_ENGINE}")
    )


def transfer_bytes() -> timeseries.Panel:
    text = describe(
        "Bytes of KV cache per second that each rank transferred to or from other engines. Good: it follows the "
        "requests. From the engines' metrics.",
        may_be_empty=_NO_TRANSFER,
    )
    return style.time_series_panel("KV transfer", text, units.BytesPerSecondSI, 12).with_target(
        query(_rate(signals.ENGINE_KV_TRANSFER_BYTES, *RANK_LABELS), PER_RANK)
    )


def transfer_time() -> timeseries.Panel:
    text = describe(
        "Median (dotted) and 95th percentile of the duration of successful KV transfers, in the buckets of the "
        "engine. Good: short, because it is part of TTFT. From the engines' metrics.",
        may_be_empty=_NO_TRANSFER,
    )
    panel = style.limit_points(style.time_series_panel("KV transfer time", text, units.Seconds, 12))
    for q in (0.5, 0.95):
        series = quantile(q, signals.ENGINE_KV_TRANSFER, RATE, ENGINE_LABELS, _ENGINE)
        panel.with_target(query(series, f"p{q * 100:g}: {PER_ENGINE}"))
    return panel.override_by_regexp("/^p50/", style.DOTTED)


def transfer_failures() -> timeseries.Panel:
    text = describe(
        "Failed KV transfers per second, and requests per second whose KV cache expired on the prefill engine before "
        "it was read, by rank. Good: 0. From the engines' metrics.",
        may_be_empty=_NO_TRANSFER,
    )
    panel = style.time_series_panel("KV transfer failures", text, "failures/s", 12)
    for what, series in (("failed", signals.ENGINE_KV_TRANSFER_FAILURES), ("expired", signals.ENGINE_KV_EXPIRED)):
        panel.with_target(query(_rate(series, *RANK_LABELS), f"{what}: {PER_RANK}"))
    return panel


def _rate(counter: Signal, *by: Label) -> str:
    return sum_by(rate(select_engine(counter), RATE), by)
