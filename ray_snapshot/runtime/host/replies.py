"""Results of calls that came over links, from when they are asked for or given until their callers have fetched them."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from ray_snapshot.errors import MachineStoppedError, RaySnapshotError, UnpicklableMessageError
from ray_snapshot.runtime.faults import text_of
from ray_snapshot.runtime.reply import RaisedError, Reply


class Replies:
    """The replies of one host's machines; everything but `outcome` happens under the host's lock."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.pending: dict[str, tuple[str, Future[Any]]] = {}
        """By call id: the machine that was called, and where the result goes; gone once the result has been fetched."""
        self.answering: dict[str, tuple[str, ...]] = {}
        """By machine: the calls that its current action answers."""

    def of(self, call_id: str, machine: str) -> Future[Any]:
        """Where the result of a call goes, whether it is asked for or given first."""
        return self.pending.setdefault(call_id, (machine, Future()))[1]

    def fetched(self, call_id: str) -> None:
        """The caller has the result."""
        self.pending.pop(call_id, None)

    def outcome(self, machine: str, method: str, result: Any, error: Exception | None) -> Reply | RaisedError:
        """What the callers of a method get, without a colour yet."""
        if error is None:
            try:
                return Reply(self.run_id, None, result)
            except Exception as fault:
                error = UnpicklableMessageError(
                    f"{machine}.{method} returned what cannot be pickled ({type(fault).__name__}: {text_of(fault)});"
                    " return plain values, or what pickle can rebuild",
                    machine=machine,
                    method=method,
                )
        return RaisedError(self.run_id, None, error)

    def give(self, machine: str, calls: tuple[str, ...], outcome: Reply | RaisedError) -> None:
        """The action that answers these calls is over."""
        self.answering.pop(machine, None)
        for call_id in calls:
            settle(self.of(call_id, machine), outcome)

    def refuse(self, machine: str, colour: int) -> None:
        """A machine of this colour has stopped: calls that it has not accepted are answered with an error."""
        accepted = self.answering.get(machine, ())
        for call_id, (target, reply) in self.pending.items():
            if target == machine and call_id not in accepted:
                error = MachineStoppedError(f"{machine} has stopped; it did not accept the call", machine=machine)
                settle(reply, RaisedError(self.run_id, colour, error))

    def fail(self, error: RaySnapshotError) -> None:
        """Give this error to every caller whose result is not there yet."""
        for _, reply in self.pending.values():
            settle(reply, error)


def settle(reply: Future[Any], outcome: Any) -> None:
    """Set the outcome of a reply, if it has none yet."""
    with suppress(InvalidStateError):
        reply.set_result(outcome)
