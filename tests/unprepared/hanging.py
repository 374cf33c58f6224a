"""Programs that hang, as their users wrote them: NAME; nothing of ours is imported. Each says `ready` and waits for ever.

Run on the cluster at `RAY_ADDRESS`; what is short there has a resource of its own, so that many can hang side by side.
"""

import asyncio
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.queue import Queue
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class Person:
    def __init__(self) -> None:
        self.others: list[Any] = []

    def meet(self, *others: Any) -> None:
        self.others = list(others)

    def value(self) -> int:
        return 1

    def ask(self) -> int:
        return sum(ray.get([other.value.remote() for other in self.others]))

    def ask_together(self, start: Any) -> int:
        ray.get(start.arrive.remote())
        return self.ask()

    def ask_first(self) -> int:
        done, _ = ray.wait([other.value.remote() for other in self.others])
        return len(done)

    def ask_by_name(self, other: str) -> int:
        return int(ray.get(ray.get_actor(other).value.remote()))

    def ask_by_a_thread(self) -> int:
        with ThreadPoolExecutor() as pool:
            return int(pool.submit(lambda: ray.get(self.others[0].value.remote())).result())

    def ask_through_a_task(self, me: Any) -> int:
        return int(ray.get(asking.remote(me)))

    def decide(self) -> int:
        return int(ray.get(self.others[0].decide.remote()))

    def get(self, box: list[Any]) -> Any:
        return ray.get(box[0])

    def make(self, me: Any) -> int:
        return int(ray.get(Child.remote(me).value.remote()))

    def need(self, resource: str) -> int:
        return int(ray.get(add.options(resources={resource: 1}).remote(1, 2)))

    def with_a_lock(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


Peer = ray.remote(num_cpus=0)(Person)


@ray.remote(num_cpus=0)
class Child:
    def __init__(self, maker: Any) -> None:
        self.value_of_maker = ray.get(maker.value.remote())

    def value(self) -> int:
        return int(self.value_of_maker)


@ray.remote(num_cpus=0)
class OnLoop:
    def meet(self, other: Any) -> None:
        self.other = other

    async def ask(self) -> int:
        return int(await self.other.value.remote())

    async def block(self) -> int:
        return int(ray.get(self.other.value.remote()))

    async def value(self) -> int:
        return 1


@ray.remote(num_cpus=0, concurrency_groups={"io": 1})
class Grouped:
    """Of its group for io one call runs at once."""

    @ray.method(concurrency_group="io")
    def load(self, me: Any) -> int:
        return int(ray.get(me.read.remote()))

    @ray.method(concurrency_group="io")
    def read(self) -> int:
        return 1


@ray.remote(num_cpus=0)
class Start:
    """Lets all go on once all are there: one that is asked before it asks would answer, and its ring would come to an end."""

    def __init__(self, count: int) -> None:
        self.missing = count
        self.is_full = asyncio.Event()

    async def arrive(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.is_full.set()
        await self.is_full.wait()


@ray.remote(num_cpus=0)
def asking(peer: Any) -> int:
    return int(ray.get(peer.value.remote()))


@ray.remote(num_cpus=0, max_retries=3, retry_exceptions=True)
def asking_back(peer: Any) -> int:
    return int(ray.get(peer.ask_through_a_task.remote(peer)))


@ray.remote(num_cpus=0)
def add(one: int, two: int) -> int:
    return one + two


@ray.remote(num_cpus=0, resources={"tool": 1})
def nested(depth: int) -> int:
    return 0 if depth == 0 else int(ray.get(nested.remote(depth - 1)))


@ray.remote(num_cpus=0, resources={"tool": 1})
def whole() -> int:
    """Holds a tool, and needs one more for each part."""
    return sum(ray.get([nested.remote(0) for _ in range(2)]))


def meeting(count: int, kind: Any = Peer, **options: Any) -> list[Any]:
    kinds = kind if isinstance(kind, list) else [kind] * count
    peers = [one.options(**options).remote() for one in kinds]
    ray.get([peer.meet.remote(peers[(place + 1) % count]) for place, peer in enumerate(peers)])
    return peers


KEPT: list[Any] = []
"""An actor ends when no handle of it is left, and others get its room."""


def all_ask(method: str, peers: list[Any], *given: Any) -> list[Any]:
    KEPT.extend(peers)
    return [getattr(peer, method).remote(*given) for peer in peers]


def with_itself(method: str, actor: Any) -> Any:
    return getattr(actor, method).remote(actor)


def ring_of_three() -> Any:
    peers = meeting(3)
    return all_ask("ask", peers) + all_ask("value", peers)


def borrowed() -> Any:
    """One asks two; two waits for a reply of one's that it was given, which nobody of the two has asked for."""
    one, two = meeting(2)
    first, reply = one.ask.remote(), one.value.remote()
    return [first, two.get.remote([reply])]


def by_name() -> Any:
    names = [f"named-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    actors = [Peer.options(name=name).remote() for name in names]
    return [actor.ask_by_name.remote(other) for actor, other in zip(actors, reversed(names), strict=True)]


def three_kinds() -> Any:
    kinds = [ray.remote(num_cpus=0)(type(name, (Person,), {})) for name in ("Clerk", "Judge", "Bailiff")]
    return meeting(3, kinds)[0].decide.remote()


def two_groups() -> Any:
    ray.get(placement_group([{"yard": 2}]).ready())
    return placement_group([{"yard": 1}]).ready()


def a_group_inside() -> Any:
    """An actor in a placement group waits for a task that wants what the group has reserved."""
    group = placement_group([{"hall": 1}])
    ray.get(group.ready())
    inside = PlacementGroupSchedulingStrategy(group)
    return Peer.options(resources={"hall": 1}, scheduling_strategy=inside).remote().need.remote("hall")


def holding(resource: str, count: int) -> Any:
    """So many actors hold all that there is; each needs one more for a task."""
    return all_ask("need", [Peer.options(resources={resource: 1}).remote() for _ in range(count)], resource)


HANGS: dict[str, Callable[[], Any]] = {
    "ring": lambda: all_ask("ask", meeting(2)),
    "ring_of_three": ring_of_three,
    "itself": lambda: all_ask("ask", meeting(1)),
    "first_of_two": lambda: all_ask("ask_first", meeting(2)),
    "through_a_task": lambda: with_itself("ask_through_a_task", Peer.remote()),
    "threads_used_up": lambda: all_ask("ask", 2 * meeting(1, max_concurrency=2)),
    "an_argument": lambda: add.remote(*all_ask("ask", meeting(2))),
    "more_actors_than_room": lambda: all_ask("value", [Peer.options(resources={"crew": 1}).remote() for _ in range(3)]),
    "an_actor_holds_what_its_task_needs": lambda: holding("bench", 1),
    "tasks_in_tasks": lambda: nested.remote(3),
    "nobody_has_it": lambda: add.options(resources={f"rare-{uuid.uuid4().hex[:4]}": 1}).remote(1, 2),
    "two_groups": two_groups,
    "borrowed": borrowed,
    "awaits_itself": lambda: all_ask("ask", meeting(1, OnLoop, max_concurrency=1)),
    "nothing_comes": lambda: Queue(actor_options={"num_cpus": 0}).get,
    "a_lock": lambda: all_ask("with_a_lock", meeting(1)),
    "asks_its_maker": lambda: with_itself("make", Peer.remote()),
    "ring_of_eight": lambda: all_ask("ask_together", meeting(8), Start.remote(8)),
    "waits_for_both": lambda: partial(ray.wait, all_ask("ask", meeting(2)), num_returns=2),
    "by_name": by_name,
    "a_group_of_one": lambda: with_itself("load", Grouped.remote()),
    "fan_out": lambda: [whole.remote() for _ in range(3)],
    "three_kinds": three_kinds,
    "two_tasks_and_an_actor": lambda: asking_back.options(max_retries=0).remote(Peer.remote()),
    "a_retried_call": lambda: all_ask("ask", meeting(2, max_restarts=1, max_task_retries=2)),
    "a_retried_task": lambda: asking_back.remote(Peer.remote()),
    "holds_more_than_it_says": lambda: holding("desk", 2),
    "a_group_inside": a_group_inside,
    "through_threads": lambda: all_ask("ask_by_a_thread", meeting(2)),
    "awaits_each_other": lambda: all_ask("ask", meeting(2, OnLoop, max_concurrency=1)),
    "gets_on_its_loop": lambda: all_ask("block", meeting(2, OnLoop)),
}
"""By name: what is waited for, or how."""

if __name__ == "__main__":
    ray.init(logging_level="ERROR", log_to_driver=False)
    waits = HANGS[sys.argv[1]]()
    print("ready", flush=True)
    waits() if callable(waits) else ray.get(waits)
