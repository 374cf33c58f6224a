"""Names of machines are taken once."""

from __future__ import annotations

import pytest

from ray_snapshot.errors import DuplicateMachineError
from ray_snapshot.runtime.service.directory import Directory


def test_a_name_that_is_taken_is_passed_over_or_refused() -> None:
    directory = Directory("bank", "chandy-lamport")

    def claim(count: int, names: list[str] | None) -> list[str]:
        return directory.claim("Account", count, names, ["host-0"] * count, None, is_driver=True)

    claim(2, ["Account-1", "Account-2"])
    assert claim(3, None) == ["Account-0", "Account-3", "Account-4"]
    assert claim(2, None) == ["Account-5", "Account-6"]
    for names in (["x", "Account-2"], ["x", "x"], ["Account-6", "Account-7"]):
        with pytest.raises(DuplicateMachineError):
            claim(2, names)
    assert "x" not in directory.places
