"""Programs that hang, as their users wrote them: NAME; nothing of ours is imported. Each says `ready` and waits for ever.

Run on the cluster at `RAY_ADDRESS`; what is short there has a resource of its own, so that many can hang side by side.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import ray

OWN = "slot"
"""Of this resource the cluster has plenty; each program that needs a scarce one makes it by taking the rest."""


@ray.remote(num_cpus=0)
class Peer:
    """Asks others, who may be asking it."""

    def __init__(self) -> None:
        self.others: list[Any] = []

    def meet(self, *others: Any) -> None:
        self.others = list(others)

    def value(self) -> int:
        return 1

    def ask(self) -> int:
        return sum(ray.get([other.value.remote() for other in self.others]))

    def ask_first(self) -> int:
        done, _ = ray.wait([other.value.remote() for other in self.others])
        return len(done)

    def ask_through_a_task(self, me: Any) -> int:
        return int(ray.get(asking.remote(me)))

    def get(self, box: list[Any]) -> Any:
        return ray.get(box[0])

    def begin(self, gate: Any) -> None:
        ray.get(gate.go.remote())

    def with_a_lock(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


@ray.remote(num_cpus=0)
def asking(peer: Any) -> int:
    return int(ray.get(peer.value.remote()))


@ray.remote(num_cpus=0)
def add(one: int, two: int) -> int:
    return one + two


def meeting(count: int, **options: Any) -> list[Any]:
    """So many peers, each of which knows the next."""
    peers = [Peer.options(**options).remote() for _ in range(count)]
    ray.get([peer.meet.remote(peers[(place + 1) % count]) for place, peer in enumerate(peers)])
    return peers


def ready(ref: Any) -> None:
    print("ready", flush=True)
    ray.get(ref)


def ring() -> None:
    ready([peer.ask.remote() for peer in meeting(2)])


def ring_of_three() -> None:
    peers = meeting(3)
    calls = [peer.ask.remote() for peer in peers]
    ready(calls + [peer.value.remote() for peer in peers])


def itself() -> None:
    ready(meeting(1)[0].ask.remote())


def first_of_two() -> None:
    ready([peer.ask_first.remote() for peer in meeting(2)])


def through_a_task() -> None:
    peer = Peer.remote()
    ready(peer.ask_through_a_task.remote(peer))


def threads_used_up() -> None:
    (peer,) = meeting(1, max_concurrency=2)
    ready([peer.ask.remote(), peer.ask.remote()])


def an_argument() -> None:
    """The argument of a task is what waits for the task."""
    one, two = meeting(2)
    first = one.ask.remote()
    second = two.ask.remote()
    ready(add.remote(first, second))


def more_actors_than_room() -> None:
    crew = [Peer.options(resources={"crew": 1}).remote() for _ in range(3)]
    ready([member.value.remote() for member in crew])


@ray.remote(num_cpus=0)
class Trainer:
    def go(self) -> int:
        return int(ray.get(prepare.remote()))


@ray.remote(num_cpus=0, resources={"bench": 1})
def prepare() -> int:
    return 1


def an_actor_holds_what_its_task_needs() -> None:
    ready(Trainer.options(resources={"bench": 1}).remote().go.remote())


@ray.remote(num_cpus=0, resources={"tool": 1})
def nested(depth: int) -> int:
    return 0 if depth == 0 else int(ray.get(nested.remote(depth - 1)))


def tasks_in_tasks() -> None:
    ready(nested.remote(3))


def nobody_has_it() -> None:
    ready(add.options(resources={f"rare-{uuid.uuid4().hex[:4]}": 1}).remote(1, 2))


def two_groups() -> None:
    from ray.util.placement_group import placement_group

    first = placement_group([{"yard": 2}])
    ray.get(first.ready())
    second = placement_group([{"yard": 1}])
    ready(second.ready())


def borrowed() -> None:
    """One asks two; two waits for a reply of one's that it was given, which nobody of the two has asked for."""
    one, two = meeting(2)
    first = one.ask.remote()
    reply = one.value.remote()
    ready([first, two.get.remote([reply])])


@ray.remote(num_cpus=0)
class Awaiting:
    async def go(self, me: Any) -> int:
        return int(await me.value.remote())

    async def value(self) -> int:
        return 1


def awaits_itself() -> None:
    actor = Awaiting.options(max_concurrency=1).remote()
    ready(actor.go.remote(actor))


def nothing_comes() -> None:
    from ray.util.queue import Queue

    queue = Queue(actor_options={"num_cpus": 0})
    print("ready", flush=True)
    queue.get()


def a_lock() -> None:
    ready(Peer.remote().with_a_lock.remote())


HANGS: tuple[Callable[[], None], ...] = (
    ring,
    ring_of_three,
    itself,
    first_of_two,
    through_a_task,
    threads_used_up,
    an_argument,
    more_actors_than_room,
    an_actor_holds_what_its_task_needs,
    tasks_in_tasks,
    nobody_has_it,
    two_groups,
    borrowed,
    awaits_itself,
    nothing_comes,
    a_lock,
)

if __name__ == "__main__":
    ray.init(logging_level="ERROR", log_to_driver=False)
    next(hang for hang in HANGS if hang.__name__ == sys.argv[1])()
