"""The textbook run of three processes, on Ray: one snapshot, started by P1 right after its event B.

The run is the one that lectures on Chandy and Lamport's algorithm share (Indranil Gupta's, retold by Lindsey
Kuper):

    P1: A, B, C, D, E     P2: F, G, H     P3: I, J     messages: A to F, I to G, H to D, C to J

What to look at: P1 alone starts the snapshot and the others learn of it from markers only. The recorded
states are {A, B}, {F, G, H} and {I}; the message sent at H and received at D is the one message of channel
C21, and every other channel is empty. P2 has recorded that it sent the message and P1 has not recorded that
it received it: without the channel it would be lost.

Nothing is left to chance: P1 accepts the message from H only together with a permission, in one action with
two inputs (`rs.join`), and the driver gives that permission after the snapshot. Until then the message stays
in its channel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.examples.program import run

NAMES = ("P1", "P2", "P3")


class Process(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.events: list[str] = []


class P1(Process):
    def a(self, p2: Any) -> None:
        self.events.append("A")
        p2.f.send("sent at A")

    def b(self) -> None:
        self.events.append("B")

    def c(self, p3: Any) -> None:
        self.events.append("C")
        p3.j.send("sent at C")

    @rs.join("from_h", "permission")
    def d(self, _message: str, _permission: str) -> None:
        self.events.append("D")
        self.handle.e.send()

    def e(self) -> None:
        self.events.append("E")


class P2(Process):
    def __init__(self, p1: Any) -> None:
        super().__init__()
        self.p1 = p1

    def f(self, _message: str) -> None:
        self.events.append("F")
        self.handle.after_f.send("F has happened")

    @rs.join("from_i", "after_f")
    def g(self, _message: str, _after_f: str) -> None:
        self.events.append("G")
        self.handle.h.send()

    def h(self) -> None:
        self.events.append("H")
        self.p1.from_h.send("sent at H")


class P3(Process):
    def i(self, p2: Any) -> None:
        self.events.append("I")
        p2.from_i.send("sent at I")

    def j(self, _message: str) -> None:
        self.events.append("J")


@rs.detector(stable=False)
def up_to_the_cut(snapshot: rs.Snapshot) -> bool:
    """The events that the snapshot is to record have happened."""
    return events(snapshot) == {"P1": ["A", "B"], "P2": ["F", "G", "H"], "P3": ["I"]}


def events(snapshot: rs.Snapshot) -> dict[str, list[str]]:
    return {name: snapshot.machines[name].state["events"] for name in NAMES if name in snapshot.machines}


def channels(snapshot: rs.Snapshot) -> dict[str, list[Any]]:
    """The messages of the channels between the processes; C21 leads from P2 to P1."""
    return {
        f"C{source[1]}{target[1]}": [message.args for message in snapshot.channels[source, target, "mail"].messages]
        for source in NAMES
        for target in NAMES
        if source != target
    }


def play(
    *, history: str | None = None, every: float = 0.2, on_verdict: Callable[[rs.Verdict], None] | None = None
) -> dict[str, Any]:
    """Run the processes with the snapshot in the middle; returns what it recorded and how the run ended."""
    watch = [up_to_the_cut, detectors.Termination()]
    with rs.System("example_run", history=history, every=every, detectors=watch) as system:
        if on_verdict:
            system.subscribe(on_verdict, repeat=True)
        p1 = system.spawn(P1, name="P1")
        p2 = system.spawn(P2, p1, name="P2")
        p3 = system.spawn(P3, name="P3")
        for source in (p1, p2, p3):
            for target in (p1, p2, p3):
                if source is not target:
                    system.connect(source, target)
        system.start()
        p1.a.send(p2)
        p1.b.send()
        p3.i.send(p2)
        system.wait_for(up_to_the_cut, timeout=60)
        cut = system.snapshot(initiators=["P1"], timeout=30)
        p1.c.send(p3)
        p1.permission.send("accept what was sent at H")
        ended = system.wait_for("termination", timeout=60)
        end = system.snapshot(timeout=30)
    return {
        "initiators": list(cut.initiators),
        "cut": events(cut),
        "channels": channels(cut),
        "end": events(end),
        "channels_at_the_end": channels(end),
        "terminated": ended.holds,
    }


def tell(facts: dict[str, Any]) -> None:
    for name, recorded in facts["cut"].items():
        print(f"{name} recorded {', '.join(recorded)}; at the end it had done {', '.join(facts['end'][name])}.")
    for channel, messages in facts["channels"].items():
        print(f"{channel}: {', '.join(str(args[0]) for args in messages) or 'empty'}")


def main(argv: list[str] | None = None) -> int:
    return run(__doc__, play, tell, argv)


if __name__ == "__main__":
    sys.exit(main())
