"""The row views of a snapshot behave as the mappings that they are."""

from __future__ import annotations

import pickle

import pytest

from ray_snapshot import Snapshot
from ray_snapshot.errors import UnknownMachineError


def test_a_machine_that_a_snapshot_has_not_is_missing_as_from_any_mapping() -> None:
    machines = Snapshot.from_rows(machines=[{"machine": "a"}]).machines
    assert machines.get("b") is None
    with pytest.raises(UnknownMachineError, match=r"^no machine 'b' in this snapshot; it has") as error:
        machines["b"]
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
