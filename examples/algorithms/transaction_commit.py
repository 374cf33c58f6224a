"""Two-phase commit as Gray and Lamport wrote it down: its safety alone, in 288 states for three resource managers.

Source: J. Gray, L. Lamport, "Consensus on transaction commit", ACM TODS 31(1), 2006; as a model: `TwoPhase.tla`, in
github.com/tlaplus/Examples, specifications/transaction_commit (288 states, three resource managers), and
`examples/2pc.rs` in github.com/stateright/stateright (288, and 8,832 for five). A resource manager may prepare, or
abort on its own while it works. The transaction manager may abort at any time; it may commit when all are prepared.
Assumed of the network: any order, any delay; what is lost is what is never accepted.

Each action of the model is an action here. What the model lets happen at any time is called for by a message that is
there from the start (`decide`, `abort`). The model never removes a message from its set `msgs`, while here a message
that was accepted is gone. So there are more states here, and it is their images under `state_of_model` that are the
model's states, all of them.

`broken`: a resource manager that is prepared may still abort on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Manager(rs.SnapshotMixin):
    """The transaction manager."""

    def __init__(self, resources: list[Any]) -> None:
        self.resources = resources
        self.state = "init"
        self.prepared: list[str] = []
        self.handle.abort.send_after(0)  # not by mail: its order with `commit` is free

    def take_prepared(self, name: str) -> None:
        """`TMRcvPrepared`."""
        if self.state == "init":
            self.prepared = sorted([*self.prepared, name])
            if len(self.prepared) == len(self.resources):
                self.handle.commit.send()

    def commit(self) -> None:
        """`TMCommit`."""
        self._end("committed")

    def abort(self) -> None:
        """`TMAbort`."""
        self._end("aborted")

    def _end(self, state: str) -> None:
        if self.state == "init":
            self.state = state
            for resource in self.resources:
                resource.learn.send(state)


class Resource(rs.SnapshotMixin):
    """A resource manager."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.state = "working"
        self.has_prepared = False
        self.handle.decide.send()

    def decide(self) -> None:
        """`RMPrepare` or `RMChooseToAbort`."""
        if self.state == "working":
            if self.random.choice([True, False]):
                self.state = "prepared"
                self.has_prepared = True
                self.manager.take_prepared.send(self.machine_name)
            else:
                self.state = "aborted"

    def learn(self, state: str) -> None:
        """`RMRcvCommitMsg` or `RMRcvAbortMsg`."""
        self.state = state


class FickleResource(Resource):
    """Thinks again."""

    def decide(self) -> None:
        if self.state == "prepared":
            self.state = "aborted"
        super().decide()
        if self.state == "prepared":
            self.handle.decide.send()


def build(system: Any, kind: type[Resource] = Resource, resources: int = 3) -> None:
    """A transaction manager and three resource managers."""
    names = [f"rm-{number}" for number in range(resources)]
    system.spawn(Manager, [system.spawn(kind, system.machine("tm"), name=name) for name in names], name="tm")


def five(system: Any) -> None:
    """The same with five resource managers."""
    build(system, resources=5)


def broken(system: Any) -> None:
    """The same, of fickle resource managers."""
    build(system, FickleResource)


def consistent(states: Mapping[str, Any]) -> bool:
    """No resource manager has committed where another has aborted (`TCConsistent`)."""
    ends = {machine.state for name, machine in states.items() if name != "tm"}
    return not {"committed", "aborted"} <= ends


def state_of_model(states: Mapping[str, Any]) -> Any:
    """(rmState, tmState, tmPrepared, msgs) of the model, from the machines.

    `msgs` has what was ever sent: a resource manager has sent "prepared" if it has once prepared, and the transaction manager
    its decision if it has decided.
    """
    resources = {name: machine for name, machine in sorted(states.items()) if name != "tm"}
    manager = states["tm"]
    sent = {name for name, resource in resources.items() if resource.has_prepared}
    decided = set() if manager.state == "init" else {manager.state}
    return (
        tuple(resource.state for resource in resources.values()),
        manager.state,
        frozenset(manager.prepared),
        frozenset(sent | decided),
    )
