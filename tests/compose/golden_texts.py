"""Golden files of texts by case, in `golden` beside the test: `WRITE_GOLDEN=1 pytest PATHS` writes them."""

import os
from collections.abc import Mapping
from pathlib import Path


def assert_golden(test: str, name: str, found: Mapping[str, str], places: Mapping[str, str] | None = None) -> None:
    """The text of each case is that of the file; `places` names what differs in each run, `test` is its `__file__`."""
    text = "".join(f"{case}: {each}".replace("\n", "\n    ") + "\n" for case, each in found.items())
    for place, instead in (places or {}).items():
        text = text.replace(place, instead)
    file = Path(test).parent / "golden" / f"{name}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
