"""The flags of `vllm-slo load warm-up`, and the sidecar to which it reports that the engine is warm."""

import argparse
import os
import uuid
from dataclasses import dataclass, field
from typing import Annotated

from exporters.http.admin_client import TOKEN_FLAG, no_sidecar, post, sidecar_url
from exporters.text.command_flags import Option, add_fields
from exporters.text.errors import UsageError
from exporters.text.token_file import read_token
from loadgen.run import settings
from loadgen.run.settings import LoadPlan, RunSettings
from loadgen.schedule.requests import Workload
from loadgen.schedule.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The metrics port of a sidecar, and its admin token."""

    url: str
    token: bytes = field(repr=False)

    @classmethod
    def parse(cls, url: str, token_file: str | None) -> "Sidecar":
        """The sidecar of the flags.

        Raises:
            UsageError: the URL or the token is invalid.
        """
        if token_file is None:
            raise UsageError(f"--ready: needs the admin token of the sidecar; add {TOKEN_FLAG} FILE")
        sidecar_url(url)
        return cls(url, read_token(token_file, TOKEN_FLAG).encode())

    def report_warm(self) -> None:
        """Report that the engine is warm.

        Raises:
            NotReachableError: the sidecar does not respond.
            UsageError: it does not accept the report.
        """
        status, text = post(self.url, "/admin/warm", self.token)
        if status != 200:
            raise no_sidecar(self.url, status, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpSettings:
    """What to send; `run` has the target, the SLO file and the timeout of a request."""

    run: RunSettings
    largest: int
    most_passes: int
    completions: bool
    ready: Sidecar | None
    """The sidecar to report to."""
    seed: str
    """Determines the texts. Each warm-up has its own, because a prefix cache may have those of an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpFlags:
    """The flags of a warm-up, beside those of the target."""

    largest: Annotated[int, settings.AT_LEAST_ONE] = 64
    """send 1, 2, 4 ... N requests at once (default: %(default)s)"""
    max_passes: Annotated[int, settings.AT_LEAST_ONE] = 5
    """give up after this number of passes, with exit status 1 (default: %(default)s)"""
    timeout: Annotated[float, Option("TIME", settings.duration)] = 600.0
    """timeout of each request; the first one may wait for a compilation (default: 10m)"""
    completions: bool = False
    """send everything to /v1/completions, for a model without a chat template"""
    ready: bool = False
    """report a warm engine to the sidecar, whose /engine/readyz waits for it with --ready-when-warm"""
    sidecar: Annotated[str, Option("URL")] = "http://127.0.0.1:9464"
    """with --ready: URL of the sidecar's metrics port (default %(default)s)"""
    admin_token_file: Annotated[str | None, Option("FILE")] = None
    """with --ready: token file, the same as --admin-token-file of the sidecar"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    settings.add_target_flags(parser)
    add_fields(parser, WarmUpFlags)


def from_arguments(arguments: argparse.Namespace) -> WarmUpSettings:
    """The settings from parsed flags.

    Raises:
        UsageError: a file or a flag is invalid.
    """
    nothing = Workload(Scenario(name="warm-up", shapes={}, phases=()), (), 0)  # the waves are sent one by one
    plan = LoadPlan(name="warm-up", timeout=arguments.timeout, shares={}, schedule=nothing)
    return WarmUpSettings(
        run=settings.of_plan(settings.with_defaults(arguments), plan, (), 0, os.environ),
        largest=arguments.largest,
        most_passes=arguments.max_passes,
        completions=arguments.completions,
        ready=Sidecar.parse(arguments.sidecar, arguments.admin_token_file) if arguments.ready else None,
        seed=uuid.uuid4().hex,
    )
