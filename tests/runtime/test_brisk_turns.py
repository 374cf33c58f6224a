"""While a host makes a report, its threads take turns quickly; else as Python would have it."""

from __future__ import annotations

import sys

import pytest

from ray_snapshot.runtime.host.recorder import TURN_S, brisk_turns


def test_turns_are_brisk_inside_only() -> None:
    before = sys.getswitchinterval()
    with brisk_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN_S)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_turns_are_as_before_also_behind_an_error() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(KeyError), brisk_turns():
        raise KeyError
    assert sys.getswitchinterval() == pytest.approx(before)
