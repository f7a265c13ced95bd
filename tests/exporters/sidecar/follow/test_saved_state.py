"""The state of a followed log is written again after another program has removed it."""

import shutil
from contextlib import closing
from pathlib import Path

from exporters.configuration.sidecar import FollowedLog
from exporters.processes.child import TaskErrors
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.follow.follower import COUNTED, LogFollower
from exporters.sidecar.follow.state import FollowStateFile
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from tests.support.sample_records import SLOS, finished


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
