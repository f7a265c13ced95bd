"""Panels on optional features of engines: queue limits, sleep mode, LoRA, external caches, KV transfer and offload."""

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import units

from alerts.promql.build import count_by, max_by, quantile, sum_by
from dashboards.grafana import style
from dashboards.grafana.ranking import highest_first
from dashboards.grafana.style import GREY
from dashboards.queries.rates import ENGINE_LABELS, PER_ENGINE, PER_RANK, RANK_LABELS, RATE, rate_by, ratio_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label

_NO_TRANSFER = "the engine transfers no KV cache (in vLLM with the connector NIXL or Mooncake), or does not expose it"


def rejections() -> timeseries.Panel:
    text = (
        "Rejections per second by the limit that was reached, such as max_num_queued_reqs. The client gets status 503 "
        "(TGI: 429), and the outcome is rejected. Good: 0. From the engines' metrics."
    )
    return style.time_series_panel(
        *("Admission rejections", text, units.RequestsPerSecond, 8),
        (rate_by(signals.ENGINE_REJECTIONS, Label.REASON, *ENGINE_LABELS), f"{{{{reason}}}}: {PER_ENGINE}"),
        may_be_empty="the engine does not expose rejections: vLLM does from 0.32 on",
    )


def sleep_state() -> stat.Panel:
    text = (
        "Number of ranks by sleep state: awake, weights_offloaded (sleep level 1) or discard_all (sleep level 2). A "
        "sleeping engine processes no requests. Good: awake. From the engines' metrics."
    )
    panel = style.stat_panel(
        *("Sleep state", text, style.COUNT, 8, 9),
        may_be_empty="the engine does not expose its sleep state: vLLM does from 0.11.2 on",
    )
    states = max_by(signals.ENGINE_SLEEP_STATE, [Label.STATE, *RANK_LABELS])
    return highest_first(panel, (count_by(states.binary("==", 1), [Label.STATE]), "{{state}}"))


def lora_adapters() -> timeseries.Panel:
    text = (
        "Adapters with running requests, and in grey the maximum of one batch (--max-loras). At the limit, requests "
        "for other adapters wait; Waiting by reason shows them as deferred. Good: below the limit. From the engines' "
        "metrics."
    )
    return style.time_series_panel(
        *("LoRA adapters", text, units.Short, 8),
        (max_by(signals.ENGINE_LORA_RUNNING, ENGINE_LABELS), f"running: {PER_ENGINE}"),
        (max_by(signals.ENGINE_LORA_LIMIT, ENGINE_LABELS), f"limit: {PER_ENGINE}"),
        may_be_empty="LoRA is off, the engine does not expose it, or vLLM has several API servers",
    ).override_by_regexp("/^limit/", [style.fixed_colour(GREY)])


def prompt_sources() -> timeseries.Panel:
    text = (
        "Prompt tokens per second of all engines, by source: computed (local_compute), found in its prefix cache "
        "(local_cache_hit), or received through a KV connector (external_kv_transfer). Good: few are computed. From "
        "the engines' metrics."
    )
    tokens = rate_by(signals.ENGINE_PROMPT_TOKENS_BY_SOURCE, Label.SOURCE)
    return style.time_series_panel(
        *("Prompt tokens by source", text, "tokens/s", 12),
        (tokens, "{{source}}"),
        may_be_empty="the engine does not expose sources: vLLM does from 0.16 on",
    )


def external_prefix_cache() -> timeseries.Panel:
    text = (
        "Share of the prompt tokens looked up through a KV connector that were found there, by rank. Good: as high as "
        "before; a hit saves prefill. From the engines' metrics."
    )
    hits = ratio_by(signals.ENGINE_EXTERNAL_CACHE_HITS, signals.ENGINE_EXTERNAL_CACHE_QUERIES, *RANK_LABELS)
    return style.ratio_panel(
        *("External prefix cache hits", text, 12),
        (hits, PER_RANK),
        may_be_empty="no KV connector is configured, there is no traffic, or the engine does not expose it",
    )


def offload_bytes() -> timeseries.Panel:
    text = (
        "Bytes per second from the GPU to offload storage (stored) and back (loaded), by rank. Loaded KV cache is not "
        "computed again. Good: some of what is stored is loaded. From the engines' metrics."
    )
    return style.time_series_panel(
        *("KV offload", text, units.BytesPerSecondSI, 12),
        (rate_by(signals.ENGINE_OFFLOAD_STORED, *RANK_LABELS), f"stored: {PER_RANK}"),
        (rate_by(signals.ENGINE_OFFLOAD_LOADED, *RANK_LABELS), f"loaded: {PER_RANK}"),
        may_be_empty="KV offload is off, or the engine does not expose it",
    )


def offload_space() -> timeseries.Panel:
    text = (
        "Share of the offload space in CPU memory that active transfers use, by rank. Near 100 % the engine drops "
        "stores. Good: far below 100 %. From the engines' metrics."
    )
    return style.ratio_panel(
        *("KV offload space in transfer", text, 12),
        (max_by(signals.ENGINE_OFFLOAD_PINNED, RANK_LABELS), PER_RANK),
        may_be_empty="KV offload is off, or the engine does not expose it: vLLM does from 0.24 on",
    )


def requests_in_fetch() -> timeseries.Panel:
    text = (
        "Waiting requests that load KV cache from another engine, by stage: the load has not started, is in progress, "
        "or is complete and the request is not yet running. Good: few. From the engines' metrics."
    )
    return style.time_series_panel(
        *("Requests in KV load", text, units.Short, 12),
        (sum_by(signals.ENGINE_KV_FETCH, [Label.STAGE, *ENGINE_LABELS]), f"{{{{stage}}}}: {PER_ENGINE}"),
        may_be_empty="the engine loads no KV cache through a connector, or does not expose it: vLLM does from 0.32 on",
    )


def transfer_bytes() -> timeseries.Panel:
    text = (
        "Bytes of KV cache per second that each rank transferred to or from other engines. Good: it follows the "
        "requests. From the engines' metrics."
    )
    return style.time_series_panel(
        *("KV transfer", text, units.BytesPerSecondSI, 12),
        (rate_by(signals.ENGINE_KV_TRANSFER_BYTES, *RANK_LABELS), PER_RANK),
        may_be_empty=_NO_TRANSFER,
    )


def transfer_time() -> timeseries.Panel:
    text = (
        "Median (dotted) and 95th percentile of the duration of successful KV transfers, in the buckets of the "
        "engine. Good: short, because it is part of TTFT. From the engines' metrics."
    )
    panel = style.time_series_panel(
        *("KV transfer time", text, style.SECONDS, 12),
        (quantile(0.5, signals.ENGINE_KV_TRANSFER, RATE, ENGINE_LABELS), f"p50: {PER_ENGINE}"),
        (quantile(0.95, signals.ENGINE_KV_TRANSFER, RATE, ENGINE_LABELS), f"p95: {PER_ENGINE}"),
        may_be_empty=_NO_TRANSFER,
    )
    return style.limit_points(panel).override_by_regexp("/^p50/", style.DOTTED)


def transfer_failures() -> timeseries.Panel:
    text = (
        "Failed KV transfers per second, and requests per second whose KV cache expired on the prefill engine before "
        "it was read, by rank. Good: 0. From the engines' metrics."
    )
    return style.time_series_panel(
        *("KV transfer failures", text, "failures/s", 12),
        (rate_by(signals.ENGINE_KV_TRANSFER_FAILURES, *RANK_LABELS), f"failed: {PER_RANK}"),
        (rate_by(signals.ENGINE_KV_EXPIRED, *RANK_LABELS), f"expired: {PER_RANK}"),
        may_be_empty=_NO_TRANSFER,
    )
