import json
import os
import stat
import zlib
from pathlib import Path

import pytest

from compose.cli import main
from dashboards.preview.chromium import BROWSER_NAMES, find_browser
from tests.dashboards.preview.sample_dashboard import PANELS, WHEN, dashboard
from tests.support.fake_prometheus import FakePrometheus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "made.json").write_text(json.dumps(dashboard(*PANELS[:2])))
    return tmp_path


def run(url: str, folder: Path, *flags: str) -> int:
    where = ["--prometheus", url, "--dashboards", str(folder), "--out", str(folder / "out"), *WHEN]
    return main(["dashboards", "preview", *where, *flags])


def test_a_self_contained_page_is_written_for_each_dashboard(
    prometheus: FakePrometheus, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(prometheus.url, folder, "--var", "class=siso") == 0
    page = folder / "out" / "made.html"
    assert capsys.readouterr().out == f"{page}\n"
    text = page.read_text(encoding="utf-8")
    assert '"text":"siso"' in text
    assert "plotly.js v" in text
    assert not {"<script src", '<link rel="stylesheet', "@import"} & set(text.split(">"))


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason=f"no browser on PATH; looked for {', '.join(BROWSER_NAMES)}")
def test_a_screenshot_is_written_next_to_the_page_with_the_theme_and_width_of_the_flags(
    prometheus: FakePrometheus, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(prometheus.url, folder, "--png", "--theme", "light", "--width", "390") == 0
    picture = folder / "out" / "made.png"
    assert capsys.readouterr().out.splitlines()[-1] == f"{picture} (light, 390 px wide)"
    assert width_and_first_pixel(picture) == (390, (255, 255, 255))


def width_and_first_pixel(picture: Path) -> tuple[int, tuple[int, ...]]:
    """The filters of PNG leave the first pixel as it is."""
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    data, at = b"", 8
    while at < len(content):
        length, kind = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8]
        data += content[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    return int.from_bytes(content[16:20], "big"), tuple(zlib.decompress(data)[1:4])


@pytest.mark.parametrize("width", ["0", "319", "7681"])
def test_an_impossible_width_is_rejected(
    prometheus: FakePrometheus, folder: Path, width: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(prometheus.url, folder, "--png", "--width", width) == 2
    assert capsys.readouterr().err == f"vllm-slo: --width: {width} is not between 320 and 7680 pixels\n"


def test_png_without_a_browser_is_rejected_with_names_to_install(
    prometheus: FakePrometheus, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert run(prometheus.url, folder, "--png") == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --png: no browser on PATH; install one of: "
        "chromium, chromium-browser, google-chrome, google-chrome-stable\n"
    )


def test_a_browser_that_does_not_start_is_one_message(
    prometheus: FakePrometheus, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = folder / "chromium"
    broken.write_text("#!/bin/sh\necho no display >&2\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert run(prometheus.url, folder, "--png") == 2
    assert capsys.readouterr().err == "vllm-slo: --png: the browser does not start: no display\n"


@pytest.mark.parametrize(
    "flags, message",
    [
        pytest.param(["--var", "class"], "--var: 'class' is not NAME=VALUE, such as class=siso", id="no value"),
        pytest.param(
            ["--var", "clas=siso"],
            "--var: no dashboard has a variable 'clas'; available: class, datasource",
            id="an unknown variable",
        ),
        pytest.param(
            ["--serve", "3001"],
            "--serve: '3001' is not a valid address; write HOST:PORT, such as 127.0.0.1:3001",
            id="no address",
        ),
        pytest.param(
            ["--refresh", "soon"],
            "--refresh: 'soon' is not a valid duration; write a number with a unit, such as 15m",
            id="no duration",
        ),
    ],
)
def test_a_wrong_flag_is_one_message(
    folder: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("http://127.0.0.1:9", folder, *flags) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"


def test_an_address_in_use_is_one_message(
    prometheus: FakePrometheus, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = prometheus.url.removeprefix("http://")
    assert run(prometheus.url, folder, "--serve", address) == 2
    assert capsys.readouterr().err == f"vllm-slo: --serve: cannot listen on {address}: address already in use\n"


def test_a_folder_that_cannot_be_written_is_one_message(
    prometheus: FakePrometheus, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "out").write_text("a file")
    assert run(prometheus.url, folder) == 2
    assert capsys.readouterr().err == f"vllm-slo: {folder / 'out' / 'made.html'}: cannot be written: file exists\n"
