"""The ports of the lab, and its messages about wrong or busy ones."""

import dataclasses

import pytest

from compose.lab.ports import SERVICES, Ports, free_ports, parse_ports, refuse_busy
from exporters.text.errors import UsageError
from tests.compose.golden_texts import assert_golden
from tests.support.ports import busy_port


def test_the_default_ports_are_those_of_the_container_lab() -> None:
    assert parse_ports("default") == Ports()
    assert Ports().url("prometheus") == "http://127.0.0.1:9090"


def test_free_ports_all_differ() -> None:
    assert len(set(dataclasses.astuple(free_ports()))) == len(SERVICES)


def test_single_ports_can_be_chosen() -> None:
    assert parse_ports("prometheus=19090, grafana=13000") == Ports(prometheus=19090, grafana=13000)


def test_a_wrong_port_is_refused() -> None:
    found = {}
    for text in ("9090", "prometeus=1", "relay=70000", "relay=9090"):
        with pytest.raises(UsageError) as caught:
            parse_ports(text)
        found[text] = str(caught.value)
    assert_golden(__file__, "wrong ports", found)


def test_every_busy_port_is_named_with_its_service() -> None:
    with busy_port() as first, busy_port() as second:
        ports = dataclasses.replace(free_ports(), relay=first, prometheus=second)
        with pytest.raises(UsageError) as caught:
            refuse_busy(ports, SERVICES)
    assert str(caught.value) == (
        f"port {first} for relay is already in use on 127.0.0.1\n"
        f"port {second} for prometheus is already in use on 127.0.0.1\n"
        "stop the other process, or choose another port: --ports relay=PORT, or --ports auto"
    )


def test_a_busy_port_of_a_service_that_is_not_started_does_not_matter() -> None:
    with busy_port() as port:
        refuse_busy(dataclasses.replace(free_ports(), grafana=port), ["relay", "sidecar"])
