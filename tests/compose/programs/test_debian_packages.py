"""The patch of Debian's Alertmanager."""

from compose.programs.debian_packages import relocate


def test_the_relative_template_folder_keeps_every_offset_of_the_binary() -> None:
    binary = b"\x7fELF..\x00/usr/share/prometheus/alertmanager/default.tmpl\x00after"
    relocated = relocate(binary)
    assert len(relocated) == len(binary)
    assert b"\x00usr//share/prometheus/alertmanager/default.tmpl\x00after" in relocated
