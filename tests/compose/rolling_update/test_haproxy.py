"""HAProxy where it is missing, and its configuration."""

import shutil
from pathlib import Path

import pytest

from compose.programs.haproxy import Haproxy, find_haproxy
from compose.rolling_update.balancer import Balancing, balancer
from exporters.text.errors import UsageError


def test_without_haproxy_and_apt_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(UsageError) as error:
        find_haproxy(tmp_path)
    assert str(error.value) == (
        "not on PATH: haproxy, liblua5.3-0, libopentracing-c-wrapper0, libopentracing1; apt-get, which could download "
        "them, is missing too; install haproxy and put it on PATH"
    )


def test_an_installed_haproxy_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/usr/sbin/haproxy")
    assert find_haproxy() == Haproxy(Path("/usr/sbin/haproxy"), {})


@pytest.mark.parametrize("balancing", list(Balancing))
def test_no_replica_gets_requests_before_it_is_added(tmp_path: Path, balancing: Balancing) -> None:
    service = balancer(Haproxy(Path("/haproxy"), {}), tmp_path, "127.64.0.254", balancing, 3)
    config = (tmp_path / "haproxy.cfg").read_text()
    assert f"mode {balancing}\n" in config
    assert config.endswith("  balance roundrobin\n  server-template replica- 3 0.0.0.0:1 disabled\n")
    assert service.command == ("/haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg"))
    assert service.ready_url == "http://127.64.0.254:8081/ready"
