"""Ways to break the protocol, each of which the simulator and the oracle must notice.

A mutant changes the classes of `ray_snapshot.protocol` through pytest's monkeypatch, so that it ends with its test. The
guard in `HostCore` that refuses red messages is taken out where it would catch the mutant before the oracle can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ray_snapshot.protocol.chandy_lamport import ChandyLamport, MarkerArrived, SendMarker
from ray_snapshot.protocol.collector import PendingSnapshot
from ray_snapshot.protocol.colours import Numbered
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.host import HostCore, OutChannel
from ray_snapshot.protocol.links import InLink
from ray_snapshot.protocol.mailbox import Inbox


@dataclass(frozen=True)
class Mutant:
    """One wrong protocol."""

    name: str
    profile: str
    """The kind of world that shows it."""
    breaks: Callable[[pytest.MonkeyPatch], None]
    seen_by: str
    """A part of what the failure says."""


def _without_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostCore, "_check_white", lambda *_: None)
    patch.setattr(HostCore, "begin_action", lambda self, machine: self._copy_if_due(machine))


def _complete_without_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingSnapshot, "is_complete", property(lambda self: not self.awaited))


# ---- markers ----------------------------------------------------------------------------------------------------------


def marker_behind_the_first_red_message(patch: pytest.MonkeyPatch) -> None:
    """The marker goes onto the link behind the next batch, and so behind what was sent meanwhile."""
    _without_guard(patch)
    carry_out, take = HostCore._carry_out, HostCore.take_batches

    def keep(self: HostCore, effects: Any) -> None:
        carry_out(self, [effect for effect in effects if not isinstance(effect, SendMarker)])
        self.__dict__.setdefault("kept", []).extend(one for one in effects if isinstance(one, SendMarker))
        for link in self.outputs.values():
            link.dirty = True

    def mark_late(self: HostCore, window: int) -> Any:
        batches = take(self, window)
        for marker in self.__dict__.pop("kept", ()):
            self.outputs[marker.target].mark(marker.colour)
        return batches

    patch.setattr(HostCore, "_carry_out", keep)
    patch.setattr(HostCore, "take_batches", mark_late)


def marker_does_not_make_red(patch: pytest.MonkeyPatch) -> None:
    """A marker ends its input, but does not make the host record: only the coordinator's request does."""
    _without_guard(patch)
    marker = ChandyLamport._marker

    def quiet(self: ChandyLamport, source: str, colour: Any) -> Any:
        due = self.due
        effects = marker(self, source, colour)
        self.due = due
        return effects

    patch.setattr(ChandyLamport, "_marker", quiet)


def boundary_later(patch: pytest.MonkeyPatch) -> None:
    """The host records, but accepts one more message first."""
    _without_guard(patch)
    boundary = HostCore.boundary
    asked: dict[str, int] = {}

    def reluctant(self: HostCore) -> Any:
        if not self.protocol.must_record:
            return ()
        asked[self.host] = asked.get(self.host, 0) + 1
        return boundary(self) if asked[self.host] % 3 == 0 else ()

    patch.setattr(HostCore, "boundary", reluctant)


def marker_waits_for_its_turn(patch: pytest.MonkeyPatch) -> None:
    """A marker is handled when all that lies in front of it has been accepted, not on arrival."""
    _without_guard(patch)
    hear, take = HostCore.hear, HostCore.next_action

    def later(self: HostCore, event: Any) -> Any:
        if not isinstance(event, MarkerArrived) or not any(box.queue for box in _boxes(self, event.source)):
            return hear(self, event)
        self.__dict__.setdefault("unheard", []).append(event)
        return ()

    def accept(self: HostCore) -> Any:
        waiting = self.__dict__.pop("unheard", [])
        for event in waiting:
            later(self, event)
        return take(self)

    patch.setattr(HostCore, "hear", later)
    patch.setattr(HostCore, "next_action", accept)


def _boxes(core: HostCore, source: str) -> list[Any]:
    return [box for box in core.inputs[source].mailboxes if box is not None]


# ---- numbers and colours ------------------------------------------------------------------------------------------------


def lower_numbers_are_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """Who records n records n alone (trap 2)."""
    patch.setattr(Numbered, "newly_red", lambda _, old, new: (new,) if new > old else ())


def numbers_are_used_again(patch: pytest.MonkeyPatch) -> None:
    """A number that was given up is given out again."""
    abort = Coordinator.abort

    def forgetful(self: Coordinator, number: int, reason: str) -> Any:
        if number == self.last:
            self.last -= 1
        return abort(self, number, reason)

    patch.setattr(Coordinator, "abort", forgetful)


def host_turns_red_one_machine_at_a_time(patch: pytest.MonkeyPatch) -> None:
    """A machine of a red host stays white until it is copied, and goes on acting as such (trap 1)."""
    _without_guard(patch)
    _never_copy_before_acting(patch)
    send = HostCore.send

    def pale(self: HostCore, machine: Any, *rest: Any) -> Any:
        self.protocol.colour, colour = machine.copied, self.protocol.colour
        try:
            return send(self, machine, *rest)
        finally:
            self.protocol.colour = colour

    patch.setattr(HostCore, "send", pale)


def reply_does_not_make_red(patch: pytest.MonkeyPatch) -> None:
    """A red reply is accepted by a white machine (trap 4, in the protocol)."""
    patch.setattr(HostCore, "note", lambda *_: ())


# ---- copies ---------------------------------------------------------------------------------------------------------------


def _never_copy_before_acting(patch: pytest.MonkeyPatch) -> None:
    copy_next, copy_if_due = HostCore.copy_next, HostCore._copy_if_due
    copying: list[bool] = []

    def lazy(self: HostCore) -> Any:
        copying.append(True)
        try:
            return copy_next(self)
        finally:
            copying.pop()

    patch.setattr(HostCore, "copy_next", lazy)
    patch.setattr(HostCore, "_copy_if_due", lambda self, machine: copy_if_due(self, machine) if copying else None)


def copy_after_the_next_action(patch: pytest.MonkeyPatch) -> None:
    """A machine may act before it is copied: the copy holds what red actions did (trap 6)."""
    _never_copy_before_acting(patch)


def resumed_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    """A machine leaves its wait, and its state changes, before it is copied (trap 6)."""

    def resume(self: HostCore, machine: Any) -> None:
        machine.is_suspended = False
        self._queue(machine)

    patch.setattr(HostCore, "resume", resume)


def copy_holds_red_messages(patch: pytest.MonkeyPatch) -> None:
    """The copy takes its mailboxes whole, whatever colour is in them."""
    copy = HostCore._copy

    def whole(self: HostCore, *rest: Any) -> Any:
        found = copy(self, *rest)
        found.inputs = [(box, accepted, list(box.queue)) for box, accepted, _ in found.inputs]
        return found

    patch.setattr(HostCore, "_copy", whole)


def copy_shares_the_mailbox(patch: pytest.MonkeyPatch) -> None:
    """The copy refers to the live mailboxes, which go on changing (trap 8)."""
    copy = HostCore._copy

    def alias(self: HostCore, *rest: Any) -> Any:
        found = copy(self, *rest)
        found.inputs = [(box, accepted, box.queue) for box, accepted, _ in found.inputs]
        return found

    patch.setattr(HostCore, "_copy", alias)


def fired_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    """A timer fires before its machine is copied: it is in no copy, and its message is red."""
    fire, copy_if_due = HostCore.fire, HostCore._copy_if_due

    def hasty(self: HostCore, channel: Any, number: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(HostCore, "_copy_if_due", lambda *_: None)
            fire(self, channel, number)

    patch.setattr(HostCore, "fire", hasty)
    patch.setattr(HostCore, "_copy_if_due", copy_if_due)


def resolved_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    """A name is found before its sender is copied: what was held for it is in no copy."""
    resolve = HostCore.resolve

    def hasty(self: HostCore, *rest: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(HostCore, "_copy_if_due", lambda *_: None)
            resolve(self, *rest)

    patch.setattr(HostCore, "resolve", hasty)


# ---- messages in flight ---------------------------------------------------------------------------------------------------


def held_messages_are_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    """What was held or timed keeps the colour in which it was sent, and is found in flight again where it arrives."""
    dispatch = HostCore._dispatch

    def old_colour(self: HostCore, channel: Any, message: Any) -> None:
        self.protocol.colour, colour = message[5], self.protocol.colour
        try:
            dispatch(self, channel, message)
        finally:
            self.protocol.colour = colour

    patch.setattr(HostCore, "_dispatch", old_colour)


def held_messages_are_lost(patch: pytest.MonkeyPatch) -> None:
    """What waits at its sender is recorded by nobody."""
    patch.setattr(OutChannel, "waiting", lambda _: [])


def recording_closed_early(patch: pytest.MonkeyPatch) -> None:
    """A snapshot is complete once every host has reported; white messages that arrive later are forgotten."""
    _complete_without_counting(patch)


def late_messages_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """White messages that arrive at a red host are not reported."""
    patch.setattr(HostCore, "_report_if_late", lambda *_: None)


def late_whether_copied_or_not(patch: pytest.MonkeyPatch) -> None:
    """A white message is reported late though its machine is still to be copied, with it."""

    def report(self: HostCore, mailbox: Any, machine: Any, message: Any) -> None:
        for number, recording in self.open.items():
            if self.protocol.is_white(message[5], number):
                recording.late.append((mailbox, machine, message))

    patch.setattr(HostCore, "_report_if_late", report)


def double_reports_count_twice(patch: pytest.MonkeyPatch) -> None:
    """A late report that comes twice is counted twice, and hides a message that is missing."""
    late = PendingSnapshot.late

    def forgetful(self: PendingSnapshot, report: Any) -> Any:
        self.late_reports.clear()
        return late(self, report)

    patch.setattr(PendingSnapshot, "late", forgetful)


def batches_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """The link takes batches as they come."""
    _without_guard(patch)
    patch.setattr(InLink, "in_order", lambda _, batch: [batch])


def mailboxes_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """A mailbox is a stack."""

    put = Inbox.put

    def push(self: Inbox, mailbox: Any, message: Any) -> None:
        put(self, mailbox, message)
        mailbox.queue.rotate(1)

    patch.setattr(Inbox, "put", push)


# ---- born meanwhile --------------------------------------------------------------------------------------------------------


def white_creation_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A creation in flight at the cut is recorded by nobody, and nobody counts creations (trap 3)."""
    begin = HostCore._begin

    def forget(self: HostCore, number: int) -> Any:
        recording = begin(self, number)
        recording.creations, recording.created, recording.arrived = [], {}, {}
        return recording

    patch.setattr(HostCore, "_begin", forget)


def new_hosts_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """The collector's list of hosts is fixed at the start, and creations are not counted (trap 3)."""
    patch.setattr(PendingSnapshot, "expect", lambda *_: None)
    count = PendingSnapshot._count

    def uncounted(self: PendingSnapshot, counts: Any, sign: int) -> None:
        known = self.reported | self.awaited
        count(self, {key: n for key, n in counts.items() if key[2] != "creation"}, sign)
        self.unheard.clear()
        assert known

    patch.setattr(PendingSnapshot, "_count", uncounted)
    patch.setattr(PendingSnapshot, "is_complete", property(_as_counted))


def _as_counted(pending: PendingSnapshot) -> bool:
    return not pending.awaited and not any(left > 0 for left in pending.missing.values())


def red_creations_are_counted(patch: pytest.MonkeyPatch) -> None:
    """A creation that arrived behind the marker is counted as arrived inside the cut."""
    begin = HostCore._begin

    def all_of_them(self: HostCore, number: int) -> Any:
        recording = begin(self, number)
        recording.arrived = {source: link.created for source, link in self.inputs.items() if link.created}
        return recording

    patch.setattr(HostCore, "_begin", all_of_them)


def host_born_red_knows_nothing(patch: pytest.MonkeyPatch) -> None:
    """A host that is born red is not told which numbers are open: white messages that reach it are missed."""
    create = HostCore.__init__

    def ignorant(self: HostCore, *rest: Any, open_at_birth: Any = (), **options: Any) -> None:
        del open_at_birth
        create(self, *rest, **options)

    patch.setattr(HostCore, "__init__", ignorant)


def body_before_its_mailbox_is_copied(patch: pytest.MonkeyPatch) -> None:
    """A machine is born without a look at what was in its mailboxes at the cut."""
    born = HostCore.born

    def hasty(self: HostCore, name: str, *rest: Any) -> Any:
        self.machine(name).copied = self.colour
        return born(self, name, *rest)

    patch.setattr(HostCore, "born", hasty)


MUTANTS = [
    Mutant(function.__name__, profile, function, seen_by)
    for function, profile, seen_by in (
        (marker_behind_the_first_red_message, "initiators", "is impossible here: it accepts"),
        (marker_does_not_make_red, "plain", "is impossible here: it accepts"),
        (boundary_later, "initiators", "is impossible here: it accepts"),
        (marker_waits_for_its_turn, "bounded", "is impossible here: it accepts"),
        (lower_numbers_are_not_recorded, "plain", "messages in flight from"),
        (numbers_are_used_again, "calls", "waits for the report"),
        (host_turns_red_one_machine_at_a_time, "plain", "the channels hold"),
        (reply_does_not_make_red, "calls", "it accepts reply"),
        (copy_after_the_next_action, "plain", "the states are"),
        (resumed_without_a_copy, "calls", "the states are"),
        (copy_holds_red_messages, "plain", "the channels hold"),
        (copy_shares_the_mailbox, "plain", "the channels hold"),
        (fired_without_a_copy, "names", "the channels hold"),
        (resolved_without_a_copy, "names", "messages in flight from"),
        (held_messages_are_recorded_twice, "names", "the channels hold"),
        (held_messages_are_lost, "names", "the channels hold"),
        (recording_closed_early, "plain", "the channels hold"),
        (late_messages_are_dropped, "plain", "messages in flight from"),
        (late_whether_copied_or_not, "plain", "the channels hold"),
        (double_reports_count_twice, "plain", "the channels hold"),
        (batches_in_any_order, "plain", "out of turn"),
        (mailboxes_in_any_order, "plain", "is impossible here: it accepts"),
        (white_creation_forgotten, "births", "creations in flight are"),
        (new_hosts_are_not_waited_for, "births", "creations in flight are"),
        (red_creations_are_counted, "births", "more in its cut than was sent"),
        (host_born_red_knows_nothing, "newcomers", "messages in flight from"),
        (body_before_its_mailbox_is_copied, "births", "the channels hold"),
    )
]

__all__ = ["MUTANTS", "Mutant"]
