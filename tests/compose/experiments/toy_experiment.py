"""A small experiment of the preset `toy`."""

from pathlib import Path

import pytest

from compose.experiments.setup import experiment_file
from exporters.text.yaml_reader import FileError

LOAD = """\
load:
  name: small
  seed: 1
  timeout: 20s
  corpus: [800, 1100]
  classes:
    short: {share: 1, prompt_tokens: {min: 40, max: 150}, output_tokens: {min: 12, max: 52}}
    long: {share: 1, prompt_tokens: {min: 30, max: 60}, output_tokens: {min: 10, max: 100}, document: true}
  phases: [{name: steady, duration: 5s, rate: 10}]
"""
HEAD = """\
name: small
source: a test
description: a small experiment
engine: {preset: toy, flags: {enable-prefix-caching: false}}
configurations:
  base: {}
  prefix: {flags: {enable-prefix-caching: true}}
"""


def write_experiment(folder: Path, *, head: str = HEAD, load: str = LOAD, more: str = "") -> Path:
    """An experiment file with additional keys."""
    folder.mkdir(exist_ok=True)
    path = folder / "small.yaml"
    path.write_text(head + load + more)
    return path


def mistakes(path: Path) -> list[str]:
    """What is reported of an invalid experiment file, without its path."""
    with pytest.raises(FileError) as caught:
        experiment_file.load(path)
    return str(caught.value).replace(f"{path}:", "").splitlines()
