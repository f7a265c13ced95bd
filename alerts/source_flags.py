"""The flags that select the counters of rules and dashboards: those of the sidecar, or those of vLLM."""

import argparse
from dataclasses import replace

from exporters.text.errors import UsageError
from exporters.vocabulary.slo_file import VERSION, SloFile, Source


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        choices=[str(each) for each in Source],
        help="the counters to use: those of the sidecar, or those of vLLM (default: from the file)",
    )
    parser.add_argument(
        "--vllm-version", metavar="V", help="release of vLLM with --source engine, such as 0.25 (default: newest known)"
    )


def with_source(spec: SloFile, arguments: argparse.Namespace) -> SloFile:
    """The file with the source and the release of the flags.

    Raises:
        UsageError: the release is not a number.
    """
    version = arguments.vllm_version or spec.engine.version
    if version and not VERSION.fullmatch(version):
        raise UsageError(f"--vllm-version: {version!r} is not a release of vLLM; write its number, such as 0.25")
    return replace(spec, source=Source(arguments.source or spec.source), engine=replace(spec.engine, version=version))
