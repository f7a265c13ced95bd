"""The row "GPU" of two dashboards, from the series of DCGM's exporter."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models import units

from alerts.causes.gpu import GPU_LABELS, at_power_limit, protects_itself, reasons
from alerts.links import PanelTitle
from alerts.promql.build import max_by, ratio
from dashboards.grafana import style, tables
from dashboards.grafana.layout import Row
from dashboards.queries.rates import rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Signal

_GPU = "{{Hostname}}/{{gpu}} {{GPU_I_PROFILE}}"
_FROM = "From the series of DCGM's exporter."
_NO_DCGM = (
    "Prometheus scrapes no DCGM exporter, or its CSV file lacks the field; to check: curl HOST:9400/metrics on the "
    "host of the GPU, then Status, Targets in Prometheus; docs/engines.md has the scrape job"
)


def row() -> Row:
    return Row("GPU", tuple(_panels()))


def _panels() -> Iterator[table.Panel | timeseries.Panel]:
    yield _list()
    yield _throttling()
    yield _throttled_time()
    yield _xid()
    yield _clock()
    yield _one("Power", "Power draw of each GPU. Good: below its limit.", units.Watt, signals.GPU_POWER)
    yield _one("Temperature", "Temperature of each GPU. Good: level.", units.Celsius, signals.GPU_TEMPERATURE)
    yield _memory()
    yield _activity()


def _list() -> table.Panel:
    text = (
        "GPUs and MIG instances, with the pod that uses each, in Kubernetes. Good: as deployed. The engines of the "
        f"variables do not select among them. {_FROM}"
    )
    titles = {
        Label.GPU_HOST: "Host",
        Label.GPU: "GPU",
        Label.GPU_MODEL: "Model",
        Label.MIG_PROFILE: "MIG profile",
        Label.MIG_INSTANCE: "MIG instance",
        Label.NAMESPACE: "Namespace",
        Label.POD: "Pod",
    }
    panel = style.table_panel("GPUs", text, units.String, 24, 6, may_be_empty=_NO_DCGM)
    return tables.list_labels(panel, max_by(signals.GPU_MEMORY_USED, titles), titles, widest=(Label.POD,))


def _throttling() -> timeseries.Panel:
    text = (
        "1 while the clock is reduced: by the hardware for its temperature or its supply (solid), or by the power "
        f"limit (dotted), which is normal under load. Good: solid at 0. {_FROM}"
    )
    panel = style.time_series_panel(
        *(PanelTitle.GPU_THROTTLING, text, units.Short, 8),
        (protects_itself(reasons()), f"hardware: {_GPU}"),
        (at_power_limit(reasons()), f"power limit: {_GPU}"),
        may_be_empty=f"{_NO_DCGM}; its default CSV file lacks DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    )
    return panel.override_by_regexp("/^power/", style.DOTTED)


def _throttled_time() -> timeseries.Panel:
    text = (
        "Share of time at a clock reduced by the temperature (solid) or by the power limit (dotted), as the GPU counts "
        f"it in ns. Good: solid at 0. {_FROM}"
    )
    thermal, power = (
        rate_by(each, *GPU_LABELS) / 1e9 for each in (signals.GPU_THERMAL_VIOLATION, signals.GPU_POWER_VIOLATION)
    )
    panel = style.ratio_panel(
        *("GPU throttled time", text, 8),
        (thermal, f"temperature: {_GPU}"),
        (power, f"power limit: {_GPU}"),
        may_be_empty=f"{_NO_DCGM}; its default CSV file lacks DCGM_FI_DEV_THERMAL_VIOLATION and POWER_VIOLATION",
    )
    return panel.override_by_regexp("/^power/", style.DOTTED)


def _xid() -> timeseries.Panel:
    text = (
        "Number of the last Xid error of each GPU, until its exporter restarts; NVIDIA's table explains it. Good: 0. "
        f"{_FROM}"
    )
    line = max_by(signals.GPU_XID, GPU_LABELS), _GPU
    return style.time_series_panel(PanelTitle.GPU_XID, text, units.Short, 8, line, may_be_empty=_NO_DCGM)


def _clock() -> timeseries.Panel:
    text = (
        "Clock of the multiprocessors (solid) and of the memory (dotted). Good: equal on GPUs of one model under load; "
        f"an idle GPU lowers it. {_FROM}"
    )
    panel = style.time_series_panel(
        *("GPU clock", text, units.Hertz, 8),
        (1e6 * max_by(signals.GPU_SM_CLOCK, GPU_LABELS), _GPU),
        (1e6 * max_by(signals.GPU_MEMORY_CLOCK, GPU_LABELS), f"memory: {_GPU}"),
        may_be_empty=_NO_DCGM,
    )
    return panel.override_by_regexp("/^memory/", style.DOTTED)


def _one(title: str, text: str, unit: str, series: Signal) -> timeseries.Panel:
    line = max_by(series, GPU_LABELS), _GPU
    return style.time_series_panel(f"GPU {title.lower()}", f"{text} {_FROM}", unit, 8, line, may_be_empty=_NO_DCGM)


def _memory() -> timeseries.Panel:
    text = (
        "Share of the memory in use, of the GPU or of the MIG instance. Good: level; vLLM reserves its KV cache at the "
        f"start. {_FROM}"
    )
    used, free = (max_by(each, GPU_LABELS) for each in (signals.GPU_MEMORY_USED, signals.GPU_MEMORY_FREE))
    return style.ratio_panel("GPU memory in use", text, 12, (ratio(used, used + free), _GPU), may_be_empty=_NO_DCGM)


def _activity() -> timeseries.Panel:
    text = (
        "Share of time with work on the GPU or MIG instance (solid), and of cycles with reads and writes of its memory "
        "(dotted) or with tensor operations. Good: decode fills the memory, prefill the tensor cores. Without "
        f"profiling metrics, only whether a kernel ran. {_FROM}"
    )
    busy, memory, tensor = (
        max_by(each, GPU_LABELS)
        for each in (signals.GPU_ENGINE_ACTIVE, signals.GPU_DRAM_ACTIVE, signals.GPU_TENSOR_ACTIVE)
    )
    panel = style.ratio_panel(
        *("GPU activity", text, 12),
        (busy.or_(max_by(signals.GPU_UTILISATION, GPU_LABELS) / 100), f"busy: {_GPU}"),
        (memory, f"memory: {_GPU}"),
        (tensor, f"tensor cores: {_GPU}"),
        may_be_empty=_NO_DCGM,
    )
    return panel.override_by_regexp("/^memory/", style.DOTTED)
