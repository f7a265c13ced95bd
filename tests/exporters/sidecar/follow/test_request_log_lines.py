"""A line of a followed request log becomes the record that it was written from; the state is saved again if removed."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from exporters.configuration.sidecar import FollowedLog
from exporters.processes.child import TaskErrors
from exporters.requestlog.reader import BadLineError
from exporters.requestlog.writer import RequestLog, encode_line
from exporters.sidecar.follow.follower import COUNTED, LogFollower
from exporters.sidecar.follow.request_log_lines import RequestLogLines
from exporters.sidecar.follow.state import FollowStateFile
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary.signals import Endpoint, Verdict
from tests.support.sample_records import SLOS, finished

LINES = RequestLogLines(SLOS)


def test_the_id_path_and_hash_of_a_request_and_its_verdicts_are_those_of_the_record() -> None:
    """`test_logged_records.py` compares all that is counted."""
    verdicts = {"ttft": Verdict.BAD, "availability": Verdict.GOOD, "e2e": Verdict.ABANDONED}
    written = finished(request_id="r-7", prompt_sha256="ab" * 16, slo=verdicts, goodput=False)
    read = LINES.record(encode_line(written, "run:1", None))
    for name in ("request_id", "route", "prompt_sha256", "request_class", "tenant", "slo", "goodput"):
        assert getattr(read, name) == getattr(written, name), name


def test_what_the_slo_file_does_not_have_is_other_and_not_counted() -> None:
    written = finished(request_class="old", tenant="gone", slo={"ttft": Verdict.BAD, "availability": Verdict.GOOD})
    read = LINES.record(encode_line(written, "run:1", None))
    assert (read.request_class, read.tenant) == ("other", "other")
    assert read.slo == {"availability": Verdict.GOOD}


def test_a_warm_up_remains_one() -> None:
    read = LINES.record(encode_line(finished(request_class="warm-up"), "run:1", None))
    assert (read.request_class, read.slo, read.goodput) == ("warm-up", {}, None)


def test_a_background_response_has_its_own_endpoint() -> None:
    written = finished(route="/v1/responses", api=Endpoint.RESPONSES_BACKGROUND)
    assert LINES.record(encode_line(written, "run:1", None)).api is Endpoint.RESPONSES_BACKGROUND


def test_another_line_is_bad() -> None:
    with pytest.raises(BadLineError):
        LINES.record(b"{}")


async def test_a_state_that_was_removed_with_its_folder_is_saved_again_although_no_line_was_added(
    tmp_path: Path,
) -> None:
    state = tmp_path / "folder" / "state"
    followed = FollowedLog(path=str(tmp_path / "log"), state=str(state))
    FollowStateFile(followed).check()
    with closing(RequestLog(tmp_path / "log")) as log:
        log.write("run", [(1, finished())], None)
    follower = LogFollower(followed, SLOS, RequestMetrics(SLOS), TaskErrors())
    assert follower.step(0.0)
    await follower._save()
    assert follower.unsaved() is None
    shutil.rmtree(state.parent)
    await follower._save()
    saved = FollowStateFile(followed).load()
    assert saved is not None
    assert saved.lines[COUNTED] == 1
    follower._log.close()
