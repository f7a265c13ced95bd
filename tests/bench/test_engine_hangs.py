"""The figures of a situation."""

from tests.bench.engine_hangs import Sample, Situation


def situation(states: str, hang: tuple[float, float] | None) -> Situation:
    """A state for each second by its first letter; `/health` returns 200 in even seconds."""
    names = {"s": "serving", "w": "wedged"}
    samples = [Sample(at, names[letter], "", 200 if at % 2 == 0 else 0) for at, letter in enumerate(states)]
    return Situation("a hang", 0.0, samples, hang)


def test_seconds_before_a_hang_are_falsely_wedged_and_those_after_it_show_when_it_was_over() -> None:
    seen = situation("swsswwwwss", (2.0, 6.0))

    assert seen.changes == "serving 0 s, wedged 1 s, serving 2 s, wedged 4 s, serving 8 s"
    assert seen.figures == {
        "wedged_after": 2.0,
        "over_after": 1.0,
        "wedged": 3,
        "health_200_while_wedged": 2,
        "falsely_wedged": 1,
    }


def test_without_a_hang_each_wedged_second_is_false() -> None:
    figures = situation("sww", None).figures

    assert (figures["falsely_wedged"], figures["wedged"], figures["wedged_after"]) == (2, 0, None)
