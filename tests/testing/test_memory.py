"""How much memory a search counts with."""

import pytest

from ray_snapshot.testing import memory


def test_memory_is_what_the_container_has_if_that_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_number", lambda name: None)
    whole = memory.memory()
    assert whole is not None
    monkeypatch.setattr(memory, "_number", lambda name: 1 << 30 if name == "memory.max" else 1 << 62)
    assert memory.memory() == min(whole, 1 << 30)
