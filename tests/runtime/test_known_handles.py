"""Handles that are sent with every snapshot: made once by who sends them, opened once by who gets them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import ray

from ray_snapshot.runtime.known_handles import KnownHandles, opened


@ray.remote(num_cpus=0)
class Told:
    """Hears, and says what it has heard with."""

    def __init__(self) -> None:
        self.handles: list[Any] = []

    def hear(self, found: dict[str, Any]) -> None:
        self.handles.append(found["me"])

    def number_of_handles(self) -> int:
        return len({id(one) for one in self.handles})

    def call_itself(self) -> bool:
        """Whether what has come can be called as any other handle."""
        return isinstance(self.handles[0].number_of_handles.remote(), ray.ObjectRef)


@pytest.mark.ray
def test_who_gets_it_again_and_again_has_one_handle_that_works(ray_cluster: None) -> None:
    actor, known = Told.remote(), KnownHandles()
    for _ in range(3):
        actor.hear.remote({"me": known.of("me", actor)})
    assert ray.get(actor.number_of_handles.remote(), timeout=60) == 1
    assert ray.get(actor.call_itself.remote(), timeout=60)
    ray.kill(actor)


def test_who_has_taken_anothers_place_is_sent_in_its_place() -> None:
    known, first, second = KnownHandles(), ("stands for", 1), ("stands for", 2)
    assert known.of("h", first) is known.of("h", first)
    sent = [pickle.loads(pickle.dumps(known.of("h", one))) for one in (first, second, second)]
    assert sent == [first, second, second]
    assert sent[1] is sent[2] is opened(known.of("h", second).pickled)
