"""What a snapshot holds of each machine of a host, and what its declared inputs say that it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from ray_snapshot.encoding import STATE_MS, Encoded, to_json
from ray_snapshot.encoding_many import texts_of
from ray_snapshot.errors import (
    MachineFailedError,
)
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.choosing import BARRIERS
from ray_snapshot.protocol.copying import Asked, Group
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.checkpointing import pickled_state
from ray_snapshot.runtime.classes import ClassStore
from ray_snapshot.runtime.faults import text_of
from ray_snapshot.runtime.here import HERE, call_site_of
from ray_snapshot.runtime.host.abroad import Abroad
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.floor import Floor
from ray_snapshot.runtime.host.meter import Meter
from ray_snapshot.runtime.host.ports import Ports
from ray_snapshot.runtime.host.replies import Replies
from ray_snapshot.runtime.host.stage import Performance, Stage
from ray_snapshot.runtime.host.unchanged import HOOKS, Unchanged, is_bare
from ray_snapshot.runtime.report import BodyCopies, BodyCopy
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.shapes import shape_of
from ray_snapshot.waits import Wait

_IS_STOPPED, _IS_HELD = attrgetter("is_stopped"), attrgetter("is_held")


@dataclass(eq=False)
class Copier:
    """Copies one host's machines, in one generation."""

    config: HostConfig
    member: Membership
    stage: Stage
    floor: Floor
    classes: ClassStore
    ports: Ports
    replies: Replies
    abroad: Abroad | None = None
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        self.unchanged = Unchanged(is_checkpointing=self.config.checkpoint)
        self.is_plain = not self.config.checkpoint and self.config.protocol not in BARRIERS
        """Whether copies hold what is recorded, and nothing else."""

    def copy(self, machine: Machine) -> BodyCopy:
        """What the snapshot holds of a machine; called by the core, under the lock, at most once per machine and instant."""
        with self.meter:
            return self._copy(machine)

    def copy_all(self, machines: Sequence[Machine]) -> list[BodyCopy]:
        """`copy` of each of these, which are of one class and of which none acts; of the first few where it takes long."""
        with self.meter:
            began, found = time.perf_counter(), list[BodyCopy]()
            for machine in machines:
                found.append(self._copy(machine))
                if time.perf_counter() - began > LIMITS.copied_one_by_one_s:
                    break
            return found

    def copy_group(self, machines: Sequence[Machine], may_rest: Asked | None) -> Group | None:
        """Those of some machines of one class, of which none acts, of which recordings hold no more than the texts of their
        attributes; these; and which of those that may rest are to be put to rest."""
        with self.meter:
            bare = self._bare_of(machines)
            return self._texts_of(bare, may_rest) if len(bare) > 1 else None

    def _bare_of(self, machines: Sequence[Machine]) -> Sequence[Machine]:
        """Those of these machines, which are of one class, whose copies are no more than the texts of their attributes."""
        kind: Any = type(machines[0].body)
        if not (self.is_plain and is_bare(kind)) or self.classes.joins[kind] or self.stage.forced in machines:
            return ()
        names = [machine.name for machine in machines]
        by_itself = (self.stage.suspended, self.ports.sources, self.unchanged.kept_of(names))
        odd = [those for those in by_itself if those and not those.keys().isdisjoint(names)]
        if not odd and not any(map(_IS_STOPPED, machines)) and not any(map(_IS_HELD, machines)):
            return machines
        return [
            machine
            for machine in machines
            if not (machine.is_stopped or machine.is_held or any(machine.name in those for those in odd))
        ]

    def _texts_of(self, machines: Sequence[Machine], may_rest: Asked | None) -> Group | None:
        """Copies of bare machines; None if there is a state that must be looked at by itself."""
        action = self.stage.action
        acting = None if action is None else action[0]
        kind = type(machines[0].body)
        lasting = self.unchanged.which_last(machines, acting)
        states = [machine.body.__dict__ for machine in machines]
        texts = texts_of(states)
        if texts is None or not HOOKS.isdisjoint(states[0]):  # all have the same fields
            return None
        found = BodyCopies(kind.__name__, texts, shape_of(kind, states[0]))
        return machines, found, self.unchanged.take(machines, found, lasting, may_rest, acting)

    def _copy(self, machine: Machine) -> BodyCopy:
        kept = self.unchanged.copy_of(machine)
        if kept is None:
            return self._read(machine)
        return kept if kept.recorded_at is None else replace(kept, recorded_at=self._instant())

    def _read(self, machine: Machine) -> BodyCopy:
        acting, HERE.machine = HERE.machine, None  # hooks look; they must not send
        try:
            return self._copied(machine)
        finally:
            HERE.machine = acting

    def _copied(self, machine: Machine) -> BodyCopy:
        class_name = type(machine.body).__name__
        action = self.stage.performing
        if machine is self.stage.forced and action is not None:
            site = call_site_of(self.floor.holder or 0)
            calls = self._call_rows(action, site)
            obstacle = f"inside {action.method} at {site}"
            return BodyCopy(class_name, "active", None, calls=calls, obstacle=obstacle, recorded_at=self._instant())
        performance = self.stage.suspended.get(machine.name)
        found = BodyCopy(class_name, "passive", None, recorded_at=self._instant())
        if performance is not None and performance.wait is not None:
            self._describe_wait(found, performance, performance.wait)
            if self.config.checkpoint:
                found.obstacle = f"inside {performance.method} at {performance.wait.call_site}, where it waits"
        elif machine.is_stopped:
            found.status = "stopped"
        elif machine.is_held:
            self._describe_held(found, machine)
        is_kept = self._rests(machine) and self.unchanged.may_keep(machine)
        wrong = _ask_hooks(found, machine.body, self._keep(machine) if self.config.checkpoint else None)
        if wrong is not None:
            self._wrong_hook(machine, wrong)
        if found.status == "passive":
            found.inputs = self.ports.inputs_of(machine)
        if is_kept and not self._is_named(machine):
            self.unchanged.keep(machine, found)
        return found

    def _rests(self, machine: Machine) -> bool:
        """Whether a machine is in no action, and nothing but its object tells what is recorded of it."""
        action = self.stage.action
        is_inside = machine.name in self.stage.suspended or (action is not None and action[0] is machine)
        return not is_inside and not machine.is_held

    def _is_named(self, machine: Machine) -> bool:
        """Whether names stand in a machine's pickle for handles of watched actors: what the watch knows of these may change."""
        return self.config.checkpoint and self.abroad is not None and self.abroad.is_named(machine)

    def _keep(self, machine: Machine) -> Callable[[BodyCopy, Any], None]:
        """What pickles a machine's state for a restore, or says why there will be none."""

        def keep(found: BodyCopy, state: Any) -> None:
            abroad = self.abroad
            blob, obstacle = pickled_state(state) if abroad is None else abroad.keep(machine, state)
            if blob is not None:
                found.kept = self.classes.keys[type(machine.body)], blob
            found.obstacle = found.obstacle or obstacle

        return keep

    def _instant(self) -> float | None:
        """When this machine turns red, if it does so by itself: now."""
        return time.time() if self.config.protocol in BARRIERS else None

    def _wrong_hook(self, machine: Machine, text: str) -> None:
        """A hook answered with what it may not: a mistake in the program, which would otherwise look like activity."""
        self.member.fail(
            MachineFailedError(
                f"{machine.name} ({type(machine.body).__name__}): {text}",
                machine=machine.name,
                method="waiting_for",
                message=None,
                source=None,
                traceback="",
            )
        )

    def _describe_held(self, found: BodyCopy, machine: Machine) -> None:
        since = int(self.stage.held_since.get(machine.name, time.time()) * 1e6)
        targets = tuple(dict.fromkeys(channel.target for channel in machine.over))
        found.status = "blocked"
        found.short_wait = ("all", len(targets), targets)
        common = {"alternative": 0, "k": len(targets), "bound": self.config.mailbox_bound, "waiting_since": since}
        found.waits = [{"on_machine": name, **common} for name in targets]
        found.calls = [{"method": "(held at a full mailbox)", "holds_slot": True, "started_at": since}]

    def _describe_wait(self, found: BodyCopy, performance: Performance, wait: waits.TrackedWait) -> None:
        found.calls = self._call_rows(performance, wait.call_site)
        if wait.may_act:
            found.status = "active"
            return
        found.status = "blocked"
        found.short_wait = wait.short_form
        found.waits = wait.rows()

    def _call_rows(self, performance: Performance, site: str | None) -> list[dict[str, Any]]:
        """The action that a machine is in: one row, or one for each call that it answers."""
        common = {
            "caller": performance.source,
            "method": performance.method,
            "holds_slot": True,
            "call_site": site,
            "started_at": int(performance.began * 1e6),
        }
        return [
            {"call_id": call_id, **common}
            for call_id in self.replies.answering.get(performance.machine.name) or (None,)
        ]


def _ask_hooks(found: BodyCopy, body: Any, keep: Callable[[BodyCopy, Any], None] | None) -> str | None:
    """What the machine says of itself; returns what is wrong with an answer, if it is no answer at all.

    A hook that raises stops nothing: it is an obstacle, and the machine may act.
    """
    try:
        state = body.snapshot_state()
        found.state = to_json(state, STATE_MS)
        found.shape = shape_of(type(body), state)
        if keep is not None:
            keep(found, state)
    except Exception as error:
        found.obstacle = f"snapshot_state raised {type(error).__name__}: {text_of(error)}"
        text = to_json({"$error": found.obstacle}).text
        found.state = Encoded(text, True, len(text))
    if found.status != "passive":
        return None
    try:
        wait = body.waiting_for()
        if isinstance(wait, Wait):
            _describe(found, wait)
        elif wait is not None:
            found.obstacle = f"waiting_for() returned {_shown(wait)}, which is no wait"
            found.status = "active"
            return f"{found.obstacle}: return rs.all_of(...), rs.any_of(...), rs.at_least(k, ...) or None"
        elif body.is_active():
            found.status = "active"
    except Exception as error:
        found.obstacle = f"waiting_for or is_active raised {type(error).__name__}: {text_of(error)}"
        found.status = "active"
    return None


def _shown(value: Any) -> str:
    """What a hook returned, for an error."""
    try:
        return repr(value)[:200]
    except Exception:  # the user's __repr__
        return f"an object of {type(value).__name__}"


def _describe(found: BodyCopy, wait: Wait) -> None:
    found.status = "blocked"
    found.short_wait = wait.short_form
    found.waits = [
        {"alternative": position, "k": alternative.k, "on_machine": name}
        for position, alternative in enumerate(wait.alternatives)
        for name in alternative.on
    ]
