"""Mistakes in the settings of a simulated engine."""


class EngineFlagsError(Exception):
    """Every mistake in a set of changes, one message each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes
