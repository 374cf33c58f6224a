"""Handles that are sent with every snapshot: made once by who sends them, opened once by who gets them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
import ray
from clean import on_cluster

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
        actor.hear.remote(known.of({"me": actor}))
    assert ray.get(actor.number_of_handles.remote(), timeout=60) == 1
    assert ray.get(actor.call_itself.remote(), timeout=60)
    ray.kill(actor)


JOINS_TWICE = """
import sys

import ray

from ray_snapshot.runtime.known_handles import opened

sent = bytes.fromhex(sys.argv[2])
for _ in range(2):
    ray.init(sys.argv[1], log_to_driver=False)
    print(opened(sent) is opened(sent), ray.get(opened(sent).number_of_handles.remote(), timeout=60))
    ray.shutdown()
"""


@pytest.mark.ray
def test_who_leaves_ray_and_joins_it_again_opens_it_again(ray_cluster: None) -> None:
    actor = Told.remote()
    sent = KnownHandles().of({"it": actor})["it"].pickled
    address = str(ray.get_runtime_context().gcs_address)
    done = subprocess.run(
        [sys.executable, "-c", JOINS_TWICE, address, sent.hex()],
        env=on_cluster(address),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "True 0\nTrue 0\n", done.stderr
    ray.kill(actor)


@pytest.mark.ray
def test_who_has_taken_anothers_place_is_sent_in_its_place(ray_cluster: None) -> None:
    known, first, second = KnownHandles(), ("stands for", 1), ("stands for", 2)
    assert known.of({"h": first})["h"] is known.of({"h": first, "g": second})["h"]
    sent = [pickle.loads(pickle.dumps(known.of({"h": one})["h"])) for one in (first, second, second)]
    assert sent == [first, second, second]
    assert sent[1] is sent[2] is opened(known.of({"h": second})["h"].pickled)
