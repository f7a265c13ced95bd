"""Selects the scraped targets by their jobs: sidecars, or vLLM with `source: engine`."""

import re

from alerts.plan import Plan
from alerts.promql.build import equal, regex, select
from alerts.promql.expression import Selector
from exporters.vocabulary.signals import UP, Label
from exporters.vocabulary.slo_file import SloFile, Source


def jobs(spec: SloFile) -> tuple[str, ...]:
    """The scrape jobs whose series the rules read."""
    return spec.scrape_job if spec.source is Source.SIDECAR else (spec.engine.job,)


def job_pattern(names: tuple[str, ...]) -> str:
    """A pattern (`=~`) of these jobs."""
    return "|".join(re.sub(r"([^\w/:-])", r"\\\1", name) for name in names)


def targets_up(plan: Plan) -> Selector:
    """The series `up` of all targets, such as `up{job="vllm-slo-sidecar"}`."""
    names = jobs(plan.spec)
    one, *others = names
    return select(UP, regex(Label.JOB, job_pattern(names)) if others else equal(Label.JOB, one))
