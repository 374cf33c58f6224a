"""Other limits for one test."""

import pytest

from ray_snapshot.limits import LIMITS, Limits


def limit(monkeypatch: pytest.MonkeyPatch, **others: float) -> None:
    """Let these limits of `LIMITS` be others until `monkeypatch` undoes it, in every room."""
    assert others.keys() <= Limits.__annotations__.keys(), others
    for name, value in others.items():
        monkeypatch.setitem(vars(LIMITS), name, value)
