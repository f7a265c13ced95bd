"""The flags that have other names since 0.2.0: for messages about old ones, and for docs/renamed.md."""

from collections.abc import Iterator

from exporters.text.environment import variable

_PROGRAM = "vllm-slo"
_TEXT = "--format table", "--format text"

RENAMED: dict[str, tuple[tuple[str, str], ...]] = {
    "doctor": (("--url", "--upstream"), ("--json", "--format json")),
    "sidecar": (("--format", "--follow-format"),),
    "drain": (("--token-file", "--admin-token-file"),),
    "flip": (("--admin", "--sidecar"), ("--token-file", "--admin-token-file")),
    "alerts check": (("FILE", "--slos FILE"),),
    "alerts explain": (("FILE", "--slos FILE"), _TEXT),
    "dashboards audit": (("--from, --range", "--since"), ("--to", "--until")),
    "dashboards preview": (("--from, --range", "--since"), ("--to", "--until")),
    "webhook": (("--file", "--out"),),
    "requests": (("FILE", "--request-log FILE"), _TEXT),
    "compare": (_TEXT,),
    "diagnose": (_TEXT,),
    "roofline": (_TEXT,),
    "backfill": (("FILE", "--request-log FILE"), ("--prometheus", "--prometheus-program")),
    "traces": (("--file", "--trace-file"), ("--max-size", "--trace-max-size")),
    "load run": (("SCENARIO", "--scenario NAME"),),
    "load find-max": (("SCENARIO", "--scenario NAME"),),
    "load replay": (("FILE", "--trace FILE"), ("--format", "--trace-format"), ("--class", "--default-class")),
    "load report": (_TEXT,),
    "load compare": (_TEXT,),
    "experiment report": (_TEXT,),
    "experiment grade": (
        ("--gpu-hour", "--gpu-hour-price, --gpus"),
        ("--api-prompt, --api-completion", "--api-price IN/OUT"),
    ),
    "experiment windows": (("--since", "--skip"),),
    "demo": (("--dir", "--out"),),
    "up": (("--dir", "--out"), ("--for", "--duration")),
}
"""Old and new spelling of the flags of each command; an upper-case one is a positional argument."""


def new_flag(prog: str, flag: str | None = None) -> str | None:
    """The spelling of a flag, or of a positional argument without a flag, that `prog` no longer has."""
    for old, now in RENAMED.get(prog.removeprefix(f"{_PROGRAM} "), ()):
        if flag in old.split(", ") if flag else old.isupper():
            return now
    return None


_REUSED = {"--format", "--prometheus", "--class", "--since"}
"""Old flags that other commands have, so that their variables may be meant for those."""


def old_variables(prog: str) -> Iterator[tuple[str, str]]:
    """The environment variables that `prog` no longer reads, each with the new spelling of its flag."""
    for old, now in RENAMED.get(prog.removeprefix(f"{_PROGRAM} "), ()):
        for flag in old.split(", "):
            if flag.startswith("--") and flag not in _REUSED and " " not in flag:
                yield variable(flag), now


def rows() -> Iterator[str]:
    """The rows of a Markdown table: commands, old spelling, new spelling."""
    for old, now in dict.fromkeys(each for flags in RENAMED.values() for each in flags):
        commands = ", ".join(command for command, flags in RENAMED.items() if (old, now) in flags)
        yield f"| {_code(commands)} | {_code(old)} | {_code(now)} |"


def _code(flags: str) -> str:
    return ", ".join(f"`{flag}`" for flag in flags.split(", "))
