"""Values of detectors that add up are remembered by what the detectors say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray_snapshot import Snapshot
from ray_snapshot.adding import total

ROWS = [{"machine": "a"}, {"machine": "b"}]


@dataclass
class Count:
    """A user's own; what it adds up hangs on what it was made with."""

    times: int
    name: str = "count"
    is_timeless: bool = True

    def partial(self, part: Snapshot) -> int:
        return self.times * part.tables["machines"].num_rows

    def merge(self, one: int, other: int) -> int:
        return one + other


class Told(Count):
    """The same, which says what it was made with."""

    asked = 0

    @property
    def spec(self) -> dict[str, Any]:
        return {"times": self.times}

    def partial(self, part: Snapshot) -> int:
        Told.asked += 1
        return super().partial(part)


def test_two_detectors_that_tell_nothing_of_themselves_do_not_share_a_value() -> None:
    found = Snapshot.from_rows(machines=ROWS)
    assert total(Count(3), found) == 3 * total(Count(1), found) > 0


def test_what_tells_of_itself_is_asked_once() -> None:
    found = Snapshot.from_rows(machines=ROWS)
    assert total(Told(3), found) == 3 * total(Told(1), found) == total(Told(3), found)
    assert Told.asked == 2
