"""A line of the request log becomes the record that it was written from, as far as series need it."""

import pytest

from exporters.requestlog.reader import BadLineError
from exporters.requestlog.writer import encode_line
from exporters.sidecar.follow.request_log_lines import RequestLogLines
from exporters.vocabulary.signals import Endpoint, Verdict
from tests.support.sample_records import SLOS, finished

LINES = RequestLogLines(SLOS)


def test_values_and_verdicts_are_those_of_the_record() -> None:
    written = finished(
        prompt_tokens=9,
        completion_tokens=4,
        cached_tokens=2,
        reasoning_tokens=1,
        ttft=0.5,
        tpot=0.02,
        queue=0.1,
        prefill=0.2,
        decode=0.3,
        before_relay=0.05,
        prompt_sha256="ab" * 16,
        prompt_repeat=True,
        slo={"ttft": Verdict.BAD, "availability": Verdict.GOOD, "e2e": Verdict.ABANDONED},
        goodput=False,
    )
    read = LINES.record(encode_line(written, "run:1", None))
    names = [
        *("time", "request_class", "tenant", "api", "outcome", "stream", "e2e", "ttft", "tpot", "queue", "prefill")
    ]
    names += ["decode", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "slo", "goodput"]
    names += ["prompt_sha256", "prompt_repeat", "model"]
    for name in names:
        assert getattr(read, name) == getattr(written, name), name
    assert read.frontend == pytest.approx(0.15)


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
