"""The hit ratio that a prefix cache of unlimited size would have, from the prefix hashes of the request log."""

from dataclasses import dataclass, field

from exporters.records.messages import PREFIX_BLOCK
from exporters.requestlog.entry import LogEntry


@dataclass(slots=True)
class PrefixReuse:
    """All blocks of all classes; a class can reuse the blocks of another.

    Which request is the first with a block depends on the order of the log; the sum over all requests does not.
    """

    _seen: set[int] = field(default_factory=set)

    def tokens(self, entry: LogEntry) -> float | None:
        """Add a request; its prompt tokens in blocks that an earlier one began with, estimated from characters.

        The whole prompt counts if it is repeated. None if the log has no hashes or no prompt tokens.
        """
        if entry.prefix_hashes is None or not entry.prompt_tokens:
            return None
        hashes = [int(each, 16) for each in entry.prefix_hashes]
        blocks = next((index for index, each in enumerate(hashes) if each not in self._seen), len(hashes))
        self._seen.update(hashes[blocks:])
        if entry.prompt_repeat:
            return float(entry.prompt_tokens)
        return entry.prompt_tokens * blocks * PREFIX_BLOCK / max(entry.prefix_characters or 0, PREFIX_BLOCK)
