"""The blocks that promtool makes, and its failures."""

import os
from pathlib import Path

import pytest

from compose.backfill.block_files import BlockMaker, block_length
from exporters.text.errors import UsageError

HOUR = 3600.0


@pytest.mark.parametrize("longest, length", [(2, 2), (5.9, 2), (6, 6), (24, 18), (54, 54), (744, 486)])
def test_a_block_is_as_long_as_promtool_makes_it(longest: float, length: float) -> None:
    assert block_length(longest * HOUR) == length * HOUR


def test_a_failure_of_promtool_is_an_error_with_its_reason(tmp_path: Path) -> None:
    failing = tmp_path / "promtool"
    failing.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    failing.chmod(0o700)
    with pytest.raises(UsageError) as refused:
        BlockMaker(failing, 7200).make(tmp_path / "in.om", tmp_path)
    assert str(refused.value) == "promtool has failed: no space left"
    failing.chmod(0o600)
    with pytest.raises(UsageError) as refused:
        BlockMaker(failing, 7200).make(tmp_path / "in.om", tmp_path)
    assert str(refused.value) == f"{failing}: cannot be started: permission denied"
    assert os.listdir(tmp_path) == ["promtool"]  # noqa: PTH208 - one name
