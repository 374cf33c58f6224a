"""Programs by chance for a host alone, in which machines act, wait, are held, stop, share and go back; and its snapshots."""

import asyncio
import random
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from lone_host import LoneHost, lone_host
from until import until

import ray_snapshot as rs
from ray_snapshot import redaction
from ray_snapshot.errors import RolledBackError
from ray_snapshot.protocol.commands import Close, DeclarePort, Request, Stop
from ray_snapshot.runtime import handles
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host.post import HostPost
from ray_snapshot.runtime.planning import opened_section
from ray_snapshot.runtime.restoring import _load_machine
from ray_snapshot.runtime.waits import TrackedWait

GATES: dict[str, threading.Event] = {}
KNOWN: dict[str, Any] = {}
"""Machines that other code of the process has: it may change them at any time."""
WEAKLY: dict[str, Any] = {}
LENT: dict[str, list[int]] = {}
PARTS: dict[str, Any] = {}


class Box:
    def __init__(self) -> None:
        self.weight = 0


class Resting(rs.SnapshotMixin):
    def __init__(self, start: int = 0) -> None:
        self.total = start
        self.items = [start]
        self.nested = {"inner": {"deep": [start]}}
        self.box = Box() if start % 2 else None
        self.friend = self.machine(f"friend-{start % 3}")

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    def grow(self, amount: int) -> None:
        self.items.append(amount)
        self.nested["inner"]["deep"].append(amount)
        if self.box is not None:
            self.box.weight += amount

    def lend(self) -> None:
        LENT[self.machine_name] = self.nested["inner"]["deep"]

    def use(self, amount: int) -> None:
        for items in LENT.values():
            items.append(amount)

    def register(self) -> None:
        KNOWN[self.machine_name] = self
        PARTS[self.machine_name] = self.box

    def register_weakly(self) -> None:
        WEAKLY[self.machine_name] = weakref.ref(self)

    def leave(self) -> None:
        for names in (KNOWN, WEAKLY, LENT, PARTS):
            names.pop(self.machine_name, None)

    def fill(self, count: int) -> None:
        for _ in range(count):
            self.machine("far").add.send(1)

    def later(self) -> None:
        self.handle.add.send_after(1_000, 1)

    def ask(self) -> None:
        """As `ray.get` does it, and the state changes on both sides of the wait."""
        self.total += 1
        post: Any = HERE.post
        token = post.begin_wait(TrackedWait(1, [("elsewhere", "elsewhere/1")], False, None, "app.py:7"))
        assert GATES[self.machine_name].wait(30)
        post.end_wait(token)
        self.total += 10


class Listener(Resting):
    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:
        self.total += 1_000 + state["total"]


class Trusted(Resting):
    volatile = False

    def register(self) -> None:
        """It keeps its promise."""

    register_weakly = lend = register

    def snapshot_state(self) -> Any:
        return {**self.__dict__, "box": None}


class Volatile(Resting):
    volatile = True

    def __init__(self, start: int = 0) -> None:
        super().__init__(start)
        WEAKLY[self.machine_name] = weakref.ref(self)

    def leave(self) -> None:
        """The thread stays."""


class Joined(Resting):
    @rs.join("left", "right")
    def both(self, left: int, right: int) -> None:
        self.total += left + right


class Wanting(Joined, Listener):
    """Has inputs, and is never at rest where checkpoints are kept."""


class Asked(Resting):
    def waiting_for(self) -> Any:
        names = sorted(LENT)
        return rs.all_of(*names) if names else None


class Lively(Resting):
    def is_active(self) -> bool:
        return bool(LENT)


class Telling(Resting):
    def snapshot_state(self) -> Any:
        return {**self.__dict__, "lent": sorted(LENT)}


class Flat(Resting):
    """Small enough to be written together with others of its class."""

    def __init__(self, start: int = 0) -> None:
        super().__init__(start)
        self.box, self.mood = None, 0.5
        del self.nested

    def grow(self, amount: int) -> None:
        self.items.append(amount)
        self.mood = "grown"

    def lend(self) -> None:
        LENT[self.machine_name] = self.items

    def claim(self) -> None:
        self.is_active = "sometimes"  # type: ignore[assignment,method-assign]


KINDS = (Flat, Flat, Flat, Resting, Trusted, Volatile, Joined, Listener, Lively, Telling, Asked)
Step = tuple[Any, ...]


def steps(seed: int, length: int = 40) -> Iterator[Step]:
    """A program, which names machines by their numbers; what cannot be done is left out as it runs."""
    chance = random.Random(seed)
    yield from (("place", friend) for friend in range(3) if seed % 2)  # else no pickle of a state lasts
    yield from (("spawn", number, kind) for number, kind in enumerate(KINDS))
    for _ in range(length):
        name, other = chance.randrange(len(KINDS)), chance.randrange(1, 100)
        yield chance.choices(
            [
                ("snapshot",), ("send", name, "add", other), ("call", name, other), ("send", name, "grow", other),
                ("send", name, "lend"), ("send", name, "use", other), ("send", name, "register"), ("poke", other),
                ("send", name, "register_weakly"), ("send", name, "leave"), ("hold", name), ("release", name),
                ("wait", name), ("go_on", name), ("stop", name), ("spawn", name, KINDS[other % len(KINDS)]),
                ("redact", other), ("declare", name, other), ("tell",), ("restore", other % 3), ("place", name),
                ("send", name, "later"), ("send", 0, "claim"),
            ],
            [14, 3, 3, 3, 2, 3, 2, 4, 2, 2, 2, 2, 2, 3, 1, 2, 1, 2, 2, 1, 1, 1, 0.3],
        )[0]  # fmt: skip
    yield ("snapshot",)


class Program:
    """Runs steps on one host; `rows` are what its snapshots held, without times."""

    def __init__(self, host: LoneHost) -> None:
        self.host = host
        self.number = 0
        self.rows: list[Any] = []

    def run(self, program: Iterable[Step]) -> list[Any]:
        for step in program:
            getattr(self, f"_{step[0]}")(*step[1:])
            self._rest()
        return self.rows

    def _rest(self) -> None:
        post = self.host.post

        def rests() -> bool:
            core = post.core
            with post.member.lock:
                is_due = core.runnable or core.births or core.must_record or core.copying.uncopied or post.notices.due
                return post.floor.is_idle and not is_due and not post.floor.returning and not post.runner.stops.asked

        until(rests, seconds=20)

    def _found(self, name: int) -> Any:
        machine = self.host.post.core.machines.get(f"m{name}")
        return None if machine is None or machine.body is None or machine.is_stopped else machine

    def _spawn(self, name: int, kind: type) -> None:
        if f"m{name}" not in self.host.post.core.machines:
            self.host.create(f"m{name}", kind, name)

    def _send(self, name: int, method: str, *args: Any) -> None:
        if self._found(name) is not None:
            self.host.send(f"m{name}", method, *args)

    def _call(self, name: int, amount: int) -> None:
        if self._found(name) is not None:
            self.host.call(f"m{name}", "add", amount)

    def _poke(self, amount: int) -> None:
        """Other code of the process changes what it has got."""
        for body in [*KNOWN.values(), *(found for ref in WEAKLY.values() if (found := ref()) is not None)]:
            body.total += amount
        for part in PARTS.values():
            if part is not None:
                part.weight += amount

    def _hold(self, name: int) -> None:
        self._send(name, "fill", 5)

    def _release(self, name: int) -> None:
        machine = self._found(name)
        if machine is not None and "far" in machine.outputs:
            channel = machine.outputs["far"]
            with self.host.post.member.lock:
                self.host.post.core.acknowledge("host-1", channel.index, channel.sent)
                self.host.post.floor.wake()

    def _wait(self, name: int) -> None:
        machine = self._found(name)
        if machine is not None and not machine.is_suspended and not machine.is_held:
            GATES[f"m{name}"] = threading.Event()
            self.host.send(f"m{name}", "ask")

    def _go_on(self, name: int) -> None:
        if f"m{name}" in self.host.post.stage.suspended:
            gate = GATES[f"m{name}"]
            gate.set()
            until(lambda: f"m{name}" not in self.host.post.stage.suspended or GATES[f"m{name}"] is not gate)

    def _stop(self, name: int) -> None:
        machine = self._found(name)
        if machine is not None and not machine.is_suspended:
            self.host.obey(Stop(machine.name, 0, 0))

    def _redact(self, number: int) -> None:
        redaction.redact(("box", "items", "friend")[number % 3])

    def _declare(self, name: int, other: int) -> None:
        if self._found(name) is not None:
            port = ("left", "right")[other % 2] if isinstance(self._found(name).body, Joined) else "add"
            self.host.obey(DeclarePort(f"m{name}", port, f"m{other % 10}", None))

    def _place(self, name: int) -> None:
        handles.handle_of("lone", f"friend-{name % 3}", "host-7")

    def _tell(self) -> None:
        post = self.host.post
        if post.config.checkpoint and not post.stage.suspended and self.number:
            asyncio.run_coroutine_threadsafe(post.notify(self.number, "kept"), self.host.loop).result(30)

    def _restore(self, back: int) -> None:
        host, old = self.host, self.host.post
        if not old.config.checkpoint or old.stage.suspended or len(self.rows) <= back:
            return
        old.retire(RolledBackError("gone back", snapshot_id=None))
        until(lambda: not old.runner.is_acting)
        config = replace(old.config, generation=old.config.generation + 1, colour=self.number)
        host.post = HostPost(config, host.service, host.loop, old.classes)
        host.begin_driver()
        for name, key, blob, is_stopped in self.rows[-1 - back]["kept"]:
            _load_machine(host.post, name, key, blob)
            host.post.core.machine(name).is_stopped = is_stopped
        host.post.core.resolve("far", "host-1")
        host.post.start()
        host.post.arm()

    def _snapshot(self) -> None:
        self.number += 1
        self.host.obey(Request(self.number))
        part = self.host.report(self.number)
        payload = next(p for (p,) in self.host.service.of("report") if p.number == self.number)
        self.host.obey(Close(self.number))
        machines: Any = part.machines
        kept = [] if payload.checkpoint is None else sorted(opened_section(payload.checkpoint)[1])
        self.rows.append(
            {
                "machines": sorted(machines.drop_columns(["recorded_at"]).to_pylist(), key=lambda row: row["machine"]),
                "waits": sorted(str({**row, "waiting_since": None}) for row in part.waits),
                "calls": sorted((row["machine"], row["method"]) for row in part.calls),
                "obstacles": sorted(part.obstacles),
                "inputs": sorted(part.inputs.items()),
                "shapes": sorted(part.shapes),
                "ends": sorted(map(str, part.table_of_ends.to_pylist())),
                "messages": sorted(map(str, part.messages.drop_columns(["call_id", "sent_at", "due_at"]).to_pylist())),
                "kept": kept,
            }
        )


def rows_of(program: Iterable[Step], **options: Any) -> list[Any]:
    """What the snapshots of a program hold."""
    forget()
    with resting_host(**options) as host:
        try:
            rows = Program(host).run(program)
            assert host.service.of("fail") == []
            return rows
        finally:
            for gate in GATES.values():
                gate.set()
            forget()


def forget() -> None:
    redaction.forget()
    handles._INTERNED.clear()
    for names in (KNOWN, WEAKLY, LENT, PARTS):
        names.clear()


@contextmanager
def resting_host(**options: Any) -> Iterator[LoneHost]:
    """A host on whose channels three messages may wait."""
    with lone_host(mailbox_bound=3, **options) as host:
        host.post.core.resolve("far", "host-1")
        yield host
