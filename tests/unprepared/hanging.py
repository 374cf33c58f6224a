"""Programs that hang, as their users wrote them: NAME; nothing of ours is imported. Each says `ready` and waits for ever.

Run on the cluster at `RAY_ADDRESS`; what is short there has a resource of its own, so that many can hang side by side.
"""

from __future__ import annotations

import asyncio
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

    def ask_together(self, start: Any) -> int:
        ray.get(start.arrive.remote())
        return self.ask()

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


@ray.remote(num_cpus=0)
class Child:
    """Its constructor asks who makes it."""

    def __init__(self, maker: Any) -> None:
        self.value_of_maker = ray.get(maker.value.remote())

    def value(self) -> int:
        return int(self.value_of_maker)


@ray.remote(num_cpus=0)
class Maker:
    def make(self, me: Any) -> int:
        return int(ray.get(Child.remote(me).value.remote()))

    def value(self) -> int:
        return 1


def asks_its_maker() -> None:
    maker = Maker.remote()
    ready(maker.make.remote(maker))


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


def ring_of_eight() -> None:
    start = Start.remote(8)
    ready([peer.ask_together.remote(start) for peer in meeting(8)])


def waits_for_both() -> None:
    one, two = meeting(2)
    calls = [one.ask.remote(), two.ask.remote()]
    print("ready", flush=True)
    ray.wait(calls, num_returns=2)


@ray.remote(num_cpus=0)
class Named:
    """Finds the other one by its name."""

    def ask(self, other: str) -> int:
        return int(ray.get(ray.get_actor(other).value.remote()))

    def value(self) -> int:
        return 1


def by_name() -> None:
    names = [f"named-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    actors = [Named.options(name=name).remote() for name in names]
    ready([actor.ask.remote(other) for actor, other in zip(actors, reversed(names), strict=True)])


@ray.remote(num_cpus=0, concurrency_groups={"io": 1})
class Grouped:
    """Of its group for io one call runs at once."""

    @ray.method(concurrency_group="io")
    def load(self, me: Any) -> int:
        return int(ray.get(me.read.remote()))

    @ray.method(concurrency_group="io")
    def read(self) -> int:
        return 1


def a_group_of_one() -> None:
    actor = Grouped.remote()
    ready(actor.load.remote(actor))


@ray.remote(num_cpus=0, resources={"tool": 1})
def part(number: int) -> int:
    return number


@ray.remote(num_cpus=0, resources={"tool": 1})
def whole() -> int:
    """Holds a tool, and needs one more for each part."""
    return sum(ray.get([part.remote(number) for number in range(2)]))


def fan_out() -> None:
    ready([whole.remote() for _ in range(3)])


class Asking:
    """Asks the next one, which may be of another kind."""

    def __init__(self, following: Any = None) -> None:
        self.following = following

    def know(self, following: Any) -> None:
        self.following = following

    def decide(self) -> int:
        return int(ray.get(self.following.decide.remote()))


def three_kinds() -> None:
    clerk, judge, bailiff = (
        ray.remote(num_cpus=0)(type(name, (Asking,), {})) for name in ("Clerk", "Judge", "Bailiff")
    )
    first = clerk.remote()
    second = judge.remote(first)
    third = bailiff.remote(second)
    ray.get(first.know.remote(third))
    ready(third.decide.remote())


@ray.remote(num_cpus=0)
def first_task(peer: Any) -> int:
    return int(ray.get(peer.ask_second_task.remote(peer)))


@ray.remote(num_cpus=0)
def second_task(peer: Any) -> int:
    return int(ray.get(peer.value.remote()))


@ray.remote(num_cpus=0)
class Between:
    def ask_second_task(self, me: Any) -> int:
        return int(ray.get(second_task.remote(me)))

    def value(self) -> int:
        return 1


def two_tasks_and_an_actor() -> None:
    ready(first_task.remote(Between.remote()))


def a_retried_call() -> None:
    one, two = meeting(2, max_restarts=1, max_task_retries=2)
    ready([one.ask.remote(), two.ask.remote()])


def a_retried_task() -> None:
    peer = Peer.remote()
    ready(asking_back.remote(peer))


@ray.remote(num_cpus=0, max_retries=3, retry_exceptions=True)
def asking_back(peer: Any) -> int:
    return int(ray.get(peer.ask_through_a_task.remote(peer)))


def holds_more_than_it_says() -> None:
    """Two actors hold all desks; each needs one more for a task."""
    actors = [Desk.remote() for _ in range(2)]
    ready([actor.go.remote() for actor in actors])


@ray.remote(num_cpus=0, resources={"desk": 1})
class Desk:
    def go(self) -> int:
        return int(ray.get(at_the_desk.remote()))


@ray.remote(num_cpus=0, resources={"desk": 1})
def at_the_desk() -> int:
    return 1


def a_group_inside() -> None:
    """An actor in a placement group waits for a task that wants what the group has reserved."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"hall": 1}])
    ray.get(group.ready())
    inside = Hall.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    ready(inside.go.remote())


@ray.remote(num_cpus=0, resources={"hall": 1})
class Hall:
    def go(self) -> int:
        return int(ray.get(in_the_hall.remote()))


@ray.remote(num_cpus=0, resources={"hall": 1})
def in_the_hall() -> int:
    return 1


@ray.remote(num_cpus=0)
class Threaded:
    """Asks by a thread of its own."""

    def meet(self, other: Any) -> None:
        self.other = other

    def ask(self) -> int:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor() as pool:
            return int(pool.submit(lambda: ray.get(self.other.value.remote())).result())

    def value(self) -> int:
        return 1


def through_threads() -> None:
    one, two = Threaded.remote(), Threaded.remote()
    ray.get([one.meet.remote(two), two.meet.remote(one)])
    ready([one.ask.remote(), two.ask.remote()])


@ray.remote(num_cpus=0)
class Mutual:
    def meet(self, other: Any) -> None:
        self.other = other

    async def ask(self) -> int:
        return int(await self.other.value.remote())

    async def value(self) -> int:
        return 1


def awaits_each_other() -> None:
    one, two = (Mutual.options(max_concurrency=1).remote() for _ in range(2))
    ray.get([one.meet.remote(two), two.meet.remote(one)])
    ready([one.ask.remote(), two.ask.remote()])


@ray.remote(num_cpus=0)
class BlocksItsLoop:
    def meet(self, other: Any) -> None:
        self.other = other

    async def ask(self) -> int:
        return int(ray.get(self.other.value.remote()))

    async def value(self) -> int:
        return 1


def gets_on_its_loop() -> None:
    one, two = (BlocksItsLoop.remote() for _ in range(2))
    ray.get([one.meet.remote(two), two.meet.remote(one)])
    ready([one.ask.remote(), two.ask.remote()])


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
    asks_its_maker,
    ring_of_eight,
    waits_for_both,
    by_name,
    a_group_of_one,
    fan_out,
    three_kinds,
    two_tasks_and_an_actor,
    a_retried_call,
    a_retried_task,
    holds_more_than_it_says,
    a_group_inside,
    through_threads,
    awaits_each_other,
    gets_on_its_loop,
)

if __name__ == "__main__":
    ray.init(logging_level="ERROR", log_to_driver=False)
    next(hang for hang in HANGS if hang.__name__ == sys.argv[1])()
