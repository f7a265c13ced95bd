"""Selects the scraped targets by their jobs: sidecars, or vLLM with `source: engine`."""

import re

from alerts.promql_text import escape
from exporters.signals import Label
from exporters.slos import SloFile, Source


def jobs(spec: SloFile) -> tuple[str, ...]:
    """The scrape jobs whose series the rules read."""
    return spec.scrape_job if spec.source is Source.SIDECAR else (spec.engine.job,)


def job_pattern(names: tuple[str, ...]) -> str:
    """A pattern (`=~`) of these jobs."""
    return "|".join(re.sub(r"([^\w/:-])", r"\\\1", name) for name in names)


def targets_up(spec: SloFile) -> str:
    """The series `up` of all targets, such as `up{job="vllm-slo-sidecar"}`."""
    names = jobs(spec)
    if len(names) == 1:
        return f'up{{{Label.JOB}="{escape(names[0])}"}}'
    return f'up{{{Label.JOB}=~"{escape(job_pattern(names))}"}}'
