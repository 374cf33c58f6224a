"""Which cases of a test come first, where not all can."""

GOLDEN = (5**0.5 - 1) / 2


def spread(count: int) -> list[int]:
    """The places 0 to `count` - 1; the first few, however many, lie all over them and have no period (steps of the golden ratio
    around a circle)."""
    return sorted(range(count), key=lambda place: place * GOLDEN % 1)
