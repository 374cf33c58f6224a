"""Whether the settings of a cell that runs again are those that the app is watched by."""

from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.instrument.watching import _settings_in


def made_by_a_cell(**changed: Any) -> dict[str, str]:
    """What is compared of these settings, which are new objects each time."""

    class Own:
        name = "own"

        def evaluate(self, snapshot: Snapshot) -> Any:
            return None

    class Fails(Own):
        def __repr__(self) -> str:
            raise KeyError("the user's own")

    @rs.detector
    def small(snapshot: Snapshot) -> bool:
        return True

    @rs.detector
    def large(snapshot: Snapshot) -> bool:
        return True

    detectors = {"small": [small], "large": [large], "shipped": [Termination()]}.get(
        changed.pop("which", ""), [Own(), Fails(), small, Deadlock()]
    )
    given = {"name": "app", "every": 1.0, "detectors": detectors, "victim": "youngest"}
    return _settings_in({**given, "on_watch": object(), **changed})


def test_what_a_cell_makes_again_is_the_same() -> None:
    assert made_by_a_cell() == made_by_a_cell()


@pytest.mark.parametrize("changed", [{"every": 2.0}, {"name": "other"}, {"which": "shipped"}, {"victim": None}])
def test_what_is_given_otherwise_is_other(changed: dict[str, Any]) -> None:
    assert made_by_a_cell() != made_by_a_cell(**changed)


def test_two_functions_are_two_detectors() -> None:
    assert made_by_a_cell(which="small") != made_by_a_cell(which="large")
