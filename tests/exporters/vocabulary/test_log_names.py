"""Lines of request logs of earlier releases."""

import pytest

from exporters.vocabulary.log_names import renamed

NEW = b'{"route":"/tokenize","slo":{"ttft":"good"}}'


@pytest.mark.parametrize(
    "line, expected",
    [
        pytest.param(b'{"endpoint":"/tokenize","slo":{"ttft":"good"}}', NEW, id="a line of 0.2.0"),
        pytest.param(NEW, NEW, id="a line of this release"),
        pytest.param(
            b'{"endpoint":"/","slo":{"route":"bad"}}', b'{"route":"/","slo":{"route":"bad"}}', id="an SLO named route"
        ),
        pytest.param(
            b'{"route":"/","slo":{"endpoint":"bad"}}',
            b'{"route":"/","slo":{"endpoint":"bad"}}',
            id="an SLO named endpoint",
        ),
        pytest.param(
            rb'{"route":"/","prompt":"{\"endpoint\":1}"}', rb'{"route":"/","prompt":"{\"endpoint\":1}"}', id="content"
        ),
        pytest.param(b"", b"", id="empty"),
    ],
)
def test_only_the_field_of_an_earlier_release_is_renamed(line: bytes, expected: bytes) -> None:
    assert renamed(line) == expected
