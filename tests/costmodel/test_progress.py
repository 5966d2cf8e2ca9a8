"""Progress of loops."""

from costmodel.progress import reported


def test_each_step_is_reported_before_it_begins_and_the_end_too() -> None:
    """The callback receives the number done, the total and the label of the next step; at the end the total."""
    seen: list[object] = []

    def record(*report: object) -> None:
        seen.append(report)

    for step in reported(["a", "b"], str.upper, record):
        record("step", step)
    assert seen == [(0, 2, "A"), ("step", "a"), (1, 2, "B"), ("step", "b"), (2, 2, "")]


def test_without_a_callback_the_steps_are_the_same() -> None:
    """Without a callback the loop runs all the same."""
    assert list(reported(["a", "b"], str.upper, None)) == ["a", "b"]
