"""Parses the flags of `vllm-slo load run` for tests."""

import argparse
from typing import Any

from loadgen import command


def parsed(*arguments: str) -> Any:
    parser = argparse.ArgumentParser(prog="vllm-slo load")
    command.configure(parser)
    return parser.parse_args(["run", *arguments])
