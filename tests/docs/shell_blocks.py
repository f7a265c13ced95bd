"""The shell commands of a page of the documentation: its indented blocks, and its fenced blocks of a shell."""

import re
from collections.abc import Iterable, Iterator

_FENCE = re.compile(r"```(\w*)\s*$")
_SHELLS = {"bash", "sh", "shell", "console"}
_COMMENT = re.compile(r"\s+# .*$")
_HEREDOC = re.compile(r"<<-?\s*'?\"?(\w+)")


def shell_commands(page: str) -> list[str]:
    """The commands of a page in order, without comments; a here document and continued lines are one command."""
    return list(_commands(_shell_lines(page.splitlines())))


def _shell_lines(lines: Iterable[str]) -> Iterator[str]:
    fence: str | None = None
    for line in lines:
        if opened := _FENCE.match(line):
            fence = opened[1] if fence is None else None
        elif fence is not None:
            if fence in _SHELLS:
                yield line
        elif line.startswith("    "):
            yield line[4:]


def _commands(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        command = [line]
        while command[-1].endswith("\\"):
            command.append(next(lines))
        if opened := _HEREDOC.search(command[-1]):
            while command[-1] != opened[1]:
                command.append(next(lines))
        if line.strip() and not line.lstrip().startswith("#"):
            command[-1] = _COMMENT.sub("", command[-1])
            yield "\n".join(command)
