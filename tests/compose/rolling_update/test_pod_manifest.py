"""The commands of a pod: those of the shipped manifest, with the address and the folder of a process."""

from pathlib import Path

from compose.rolling_update.pod_manifest import METRICS, RELAY, PodManifest, read

MANIFEST = PodManifest(
    sidecar=(
        "sidecar",
        "--upstream=http://127.0.0.1:8000",
        "--listen=0.0.0.0:8001",
        "--slos=/etc/vllm-slo/slos.yaml",
        "--admin-token-file=/etc/vllm-slo-admin/token",
        "--state=/var/lib/vllm-slo/state.json",
        "--drain=60s",
    ),
    hook=("python3", "/etc/vllm-slo-drain/drain.py", "75"),
    grace=120,
)


def test_a_sidecar_gets_the_address_and_the_folder_of_its_pod() -> None:
    assert MANIFEST.sidecar_words("127.64.0.1", Path("/pods/a"), {}) == (
        "sidecar",
        "--upstream=http://127.64.0.1:8000",
        "--listen=127.64.0.1:8001",
        "--slos=/pods/a/slos.yaml",
        "--admin-token-file=/pods/a/token",
        "--state=/pods/a/state.json",
        "--drain=60s",
    )


def test_a_flag_can_have_another_value() -> None:
    words = MANIFEST.sidecar_words("127.64.0.1", Path("/pods/a"), {"--drain": "1s", "--linger": "0"})
    assert words[-1] == "--drain=1s"
    assert len(words) == len(MANIFEST.sidecar)


def test_the_hook_is_the_script_of_the_chart_with_the_address_and_the_token_of_its_pod() -> None:
    script, *rest = MANIFEST.hook_words("127.64.0.1", Path("/pods/a"))
    assert Path(script).name == "drain.py"
    assert Path(script).is_file()
    assert rest == ["75", f"http://127.64.0.1:{METRICS}", "/pods/a/token"]


def test_the_shipped_manifest_keeps_nothing_of_a_container(tmp_path: Path) -> None:
    shipped = read()
    words = shipped.sidecar_words("127.64.0.1", tmp_path, {})
    assert not [word for word in words if "/etc/" in word or "/var/" in word or "0.0.0.0" in word]
    assert f"--listen=127.64.0.1:{RELAY}" in words
    assert f"--metrics=127.64.0.1:{METRICS}" in words
    assert shipped.grace > float(shipped.hook[2])
