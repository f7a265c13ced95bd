"""An outage has a line at its begin, one for another reason, and one at its end, whatever the number of failures."""

import logging

import pytest

from exporters.text.outage_log import LOG_SECONDS, OutageLog


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> OutageLog:
    caplog.set_level("INFO")
    return OutageLog(logging.getLogger("test"), "the engine at a:8000", "reached")


def test_an_outage_has_a_line_at_its_begin_and_at_its_end(log: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    log.succeeded(0.0)
    for at in range(1, 1000):
        log.failed("connection refused", float(at))
    log.succeeded(1000.0)
    log.succeeded(1001.0)
    assert caplog.messages == [
        "the engine at a:8000 cannot be reached: connection refused",
        "the engine at a:8000 can be reached again, after 999 s",
    ]


def test_another_reason_is_logged_a_minute_after_the_last_line(
    log: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.failed("connection refused", 0.0)
    log.failed("no route to host", LOG_SECONDS - 1)
    assert len(caplog.messages) == 1
    log.failed("no route to host", LOG_SECONDS)
    assert caplog.messages[1:] == ["the engine at a:8000 cannot be reached: no route to host"]


def test_an_engine_that_comes_and_goes_has_two_lines_a_minute(log: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    for at in range(600):
        log.failed("connection refused", float(at))
        log.succeeded(at + 0.5)
    assert len(caplog.messages) == 2 * 600 / LOG_SECONDS


def test_an_outage_within_a_minute_of_the_last_is_logged_if_it_lasts(
    log: OutageLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.failed("connection refused", 0.0)
    log.succeeded(1.0)
    log.failed("connection refused", 2.0)
    assert len(caplog.messages) == 2
    log.failed("connection refused", LOG_SECONDS)
    assert len(caplog.messages) == 3
