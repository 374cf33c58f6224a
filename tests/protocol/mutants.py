"""Ways to break the protocol, each of which the simulator and the oracle must notice.

A mutant changes the classes of `ray_snapshot.protocol` through pytest's monkeypatch, so that it ends with its test. The
guard in `HostCore` that refuses red messages is taken out where it would catch the mutant before the oracle can.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ray_snapshot.protocol.acceptance import Numbers
from ray_snapshot.protocol.barrier_host import BarrierCore, StreamInbox
from ray_snapshot.protocol.barriers import Alignment
from ray_snapshot.protocol.chandy_lamport import ChandyLamport, MarkerArrived, NumberSeen, SendMarker
from ray_snapshot.protocol.collector import PendingCounts
from ray_snapshot.protocol.colours import Numbered
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.copying import Copying
from ray_snapshot.protocol.host import HostCore, OutChannel
from ray_snapshot.protocol.links import InLink, OutLink
from ray_snapshot.protocol.mailbox import COLOUR, Inbox
from ray_snapshot.protocol.observer import LooseInbox, LooseInLink, Observer


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
    patch.setattr(PendingCounts, "is_complete", property(lambda self: not self.awaited))


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
        due = self.turning.due
        effects = marker(self, source, colour)
        self.turning.due, self.turning.must_turn = due, due != self.turning.colour
        return effects

    patch.setattr(ChandyLamport, "_marker", quiet)


def boundary_later(patch: pytest.MonkeyPatch) -> None:
    """The host records, but accepts one more message first."""
    _without_guard(patch)
    boundary = HostCore.boundary
    asked: dict[str, int] = {}

    def reluctant(self: HostCore) -> Any:
        if not self.turning.must_turn:
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
        self.turning.colour, colour = machine.copied, self.turning.colour
        try:
            return send(self, machine, *rest)
        finally:
            self.turning.colour = colour

    patch.setattr(HostCore, "send", pale)


def reply_does_not_make_red(patch: pytest.MonkeyPatch) -> None:
    """A red reply is accepted by a white machine (trap 4, in the protocol)."""
    patch.setattr(HostCore, "note", lambda *_: ())


# ---- copies ---------------------------------------------------------------------------------------------------------------


def _never_copy_before_acting(patch: pytest.MonkeyPatch) -> None:
    copy_next, copy_if_due = HostCore.copy_next, HostCore._copy_if_due
    copying: list[bool] = []

    def lazy(self: HostCore, most: int = 1) -> Any:
        copying.append(True)
        try:
            return copy_next(self, most)
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
    copy = Copying.copy_of

    def whole(self: Copying, *rest: Any) -> Any:
        found = copy(self, *rest)
        found.queued = {box: list(box.queue) for box in found.boxes}
        return found

    patch.setattr(Copying, "copy_of", whole)


def copy_shares_the_mailbox(patch: pytest.MonkeyPatch) -> None:
    """The copy refers to the live mailboxes, which go on changing (trap 8)."""
    copy = Copying.copy_of

    def alias(self: Copying, *rest: Any) -> Any:
        found = copy(self, *rest)
        found.queued = {box: box.queue for box in found.boxes}
        return found

    patch.setattr(Copying, "copy_of", alias)


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
        self.turning.colour, colour = message[5], self.turning.colour
        try:
            dispatch(self, channel, message)
        finally:
            self.turning.colour = colour

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
            if self.turning.is_white(message[5], number):
                recording.late.append((mailbox, machine, message))

    patch.setattr(HostCore, "_report_if_late", report)


def double_reports_count_twice(patch: pytest.MonkeyPatch) -> None:
    """A late report that comes twice is counted twice, and hides a message that is missing."""
    late = PendingCounts.late

    def forgetful(self: PendingCounts, report: Any) -> Any:
        self.late_reports.clear()
        return late(self, report)

    patch.setattr(PendingCounts, "late", forgetful)


def batches_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """The link takes batches as they come."""
    _without_guard(patch)
    patch.setattr(InLink, "in_order", lambda _, batch: [batch])


def mailboxes_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """A mailbox is a stack."""
    put = Inbox.put

    def push(self: Inbox, mailbox: Any, message: Any) -> None:
        put(self, mailbox, message)
        first, *others = reversed(mailbox.queue)
        mailbox.queue = deque((first, *reversed(others)))

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
    patch.setattr(PendingCounts, "expect", lambda *_: None)
    count = PendingCounts._count

    def uncounted(self: PendingCounts, counts: Any, sign: int) -> None:
        known = self.reported | self.awaited
        count(self, {key: n for key, n in counts.items() if key[2] != "creation"}, sign)
        self.unheard.clear()
        assert known

    patch.setattr(PendingCounts, "_count", uncounted)
    patch.setattr(PendingCounts, "is_complete", property(_as_counted))


def _as_counted(pending: PendingCounts) -> bool:
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


# ---- barriers ----------------------------------------------------------------------------------------------------------


def barrier_does_not_block(patch: pytest.MonkeyPatch) -> None:
    """What comes behind a barrier is accepted while others are awaited, as if alignment were not skipped (trap 13)."""
    _without_barrier_guard(patch)
    patch.setattr(Alignment, "is_blocked", lambda *_: False)


def _without_barrier_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BarrierCore, "_check_white", lambda *_: None)


def barrier_sent_late(patch: pytest.MonkeyPatch) -> None:
    """Barriers go out when the links are next emptied, behind what was sent meanwhile; that bears no colour."""
    _without_barrier_guard(patch)
    send, send_on, flush = BarrierCore._send_barriers, HostCore.send_on, HostCore.take_batches

    def later(self: BarrierCore, machine: Any, *rest: Any) -> None:
        self.__dict__.setdefault("kept", []).append((machine, *rest))
        self.must_flush = True

    def pale(self: HostCore, channel: Any, *rest: Any) -> None:
        kept = [one for one, *_ in self.__dict__.get("kept", ())]
        if not isinstance(self, BarrierCore) or channel.owner not in kept:
            send_on(self, channel, *rest)
            return
        channel.owner.copied, colour = 0, channel.owner.copied
        self.acting, acting = channel.owner, self.acting
        try:
            send_on(self, channel, *rest)
        finally:
            channel.owner.copied, self.acting = colour, acting

    def batches(self: HostCore, window: int) -> Any:
        for machine, *rest in self.__dict__.pop("kept", ()):
            send(self, machine, *rest)  # type: ignore[arg-type]
        return flush(self, window)

    patch.setattr(BarrierCore, "_send_barriers", later)
    patch.setattr(HostCore, "send_on", pale)
    patch.setattr(HostCore, "take_batches", batches)


def barriers_are_not_sent(patch: pytest.MonkeyPatch) -> None:
    """A machine records and tells nobody: who awaits its barrier waits for ever."""
    patch.setattr(BarrierCore, "_send_barriers", lambda *_: None)


def new_channels_begin_without_a_barrier(patch: pytest.MonkeyPatch) -> None:
    """A channel that a red machine opens, and that is awaited or not, says nothing of it."""
    patch.setattr(BarrierCore, "_redder", lambda self, inbox, mailbox, message: self.hear(NumberSeen(message[COLOUR])))


def barriers_stay_on_their_host(patch: pytest.MonkeyPatch) -> None:
    """Barriers reach the machines of the same host only."""
    put = BarrierCore._put_barrier
    patch.setattr(
        BarrierCore, "_put_barrier", lambda self, channel, colour: channel.link is None and put(self, channel, colour)
    )


def red_reply_is_accepted_in_white(patch: pytest.MonkeyPatch) -> None:
    """A red reply does not force its reader (traps 4 and 13)."""

    def note(self: BarrierCore, colour: Any, machine: Any = None) -> tuple[Any, ...]:
        del machine
        self.hear(NumberSeen(colour))
        return ()

    patch.setattr(BarrierCore, "note", note)


def back_edges_are_not_logged(patch: pytest.MonkeyPatch) -> None:
    """What is white on an input that nobody awaits, and comes after the record, is forgotten."""
    _complete_without_counting(patch)
    late = HostCore._report_if_late

    def report(self: HostCore, mailbox: Any, machine: Any, message: Any) -> None:
        if (mailbox.source, mailbox.kind) in machine.inbox.alignment.awaited:
            late(self, mailbox, machine, message)

    patch.setattr(HostCore, "_report_if_late", report)


def late_messages_within_a_host_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """No count would miss them: between two machines of a host that record one after the other."""
    late = HostCore._report_if_late

    def report(self: HostCore, mailbox: Any, machine: Any, message: Any) -> None:
        if mailbox.link is not None:
            late(self, mailbox, machine, message)

    patch.setattr(HostCore, "_report_if_late", report)


def barriers_are_messages_in_flight(patch: pytest.MonkeyPatch) -> None:
    """The copy holds what lies in the mailboxes, the barriers of other snapshots among it."""
    patch.setattr(BarrierCore, "_copy", _copy_with_barriers)


def _copy_with_barriers(self: BarrierCore, machine: Any, number: int, extra: Any) -> Any:
    return self.copying.copy_of(machine, number, extra)


def overtaken_messages_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Unaligned, and what the barrier overtook is not stored."""
    copy = BarrierCore._copy

    def forget(self: BarrierCore, *rest: Any) -> Any:
        found = copy(self, *rest)
        found.queued = {}
        return found

    _complete_without_counting(patch)
    patch.setattr(BarrierCore, "_copy", forget)


def a_white_parent_has_red_creations(patch: pytest.MonkeyPatch) -> None:
    """What a white machine creates on a host that has heard of the number is left out (trap 3)."""
    patch.setattr(BarrierCore, "create", HostCore.create)


def alignment_records_inside_the_action(patch: pytest.MonkeyPatch) -> None:
    """The state is copied though the machine is in the middle of an action (trap 6)."""
    copy = BarrierCore._copy_if_due

    def hasty(self: BarrierCore, machine: Any) -> None:
        self.acting, acting = None, self.acting
        try:
            copy(self, machine)
        finally:
            self.acting = acting

    patch.setattr(BarrierCore, "_copy_if_due", hasty)


def duplicates_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """With alignment skipped, nobody knows what a restore will repeat."""
    patch.setattr(BarrierCore, "_check_white", lambda *_: None)


def duplicates_are_counted_for_the_next_snapshot_too(patch: pytest.MonkeyPatch) -> None:
    """What was repeated for n counts again for whoever records next."""
    patch.setattr(StreamInbox, "forget_repeated", lambda *_: None)
    patch.setattr(BarrierCore, "_copy", _copy_with_all_duplicates)


def _copy_with_all_duplicates(self: BarrierCore, machine: Any, number: int, extra: Any) -> Any:
    found = self.copying.copy_of(machine, number, extra)
    found.queued = {box: [one for one in messages if one[1]] for box, messages in found.queued.items()}
    found.duplicates = {}
    for (key, _), count in machine.inbox.repeated.items():
        found.duplicates[key] = found.duplicates.get(key, 0) + count
    return found


# ---- the observer -------------------------------------------------------------------------------------------------------


def number_is_not_attached(patch: pytest.MonkeyPatch) -> None:
    """Whoever has recorded goes on sending as before."""
    send_on = HostCore.send_on

    def pale(self: HostCore, channel: Any, *rest: Any) -> None:
        send_on(self, channel, *rest)
        link = channel.link
        if link is not None:
            link.messages[-1] = (*link.messages[-1][:5], 0)

    patch.setattr(HostCore, "send_on", pale)
    patch.setattr(OutLink, "attach", lambda *_: None)


def number_on_a_message_is_not_heeded(patch: pytest.MonkeyPatch) -> None:
    """A message that bears the number does not make its receiver record."""
    _without_guard(patch)
    step = Observer.step
    patch.setattr(Observer, "step", lambda self, event: () if isinstance(event, NumberSeen) else step(self, event))


def number_is_forgotten_on_replies(patch: pytest.MonkeyPatch) -> None:
    """Replies bear no number (trap 4)."""
    patch.setattr(HostCore, "note", lambda *_: ())


def number_is_forgotten_on_creations(patch: pytest.MonkeyPatch) -> None:
    """A creation behind the record looks as if it were inside the cut (trap 3)."""
    create = HostCore.create

    def pale(self: HostCore, creator: str, child: str, host: str, *rest: Any) -> None:
        create(self, creator, child, host, *rest)
        if host != self.host:
            link = self.outputs[host]
            link.messages[-1] = (*link.messages[-1][:5], 0)

    patch.setattr(HostCore, "create", pale)


def number_is_attached_too_early(patch: pytest.MonkeyPatch) -> None:
    """What is sent between the request and the record bears the number already."""
    send_on = HostCore.send_on

    def early(self: HostCore, channel: Any, *rest: Any) -> None:
        send_on(self, channel, *rest)
        link = channel.link
        if link is not None:
            link.messages[-1] = (*link.messages[-1][:5], self.turning.due)  # type: ignore[attr-defined]

    patch.setattr(HostCore, "send_on", early)


def messages_without_the_number_are_not_reported(patch: pytest.MonkeyPatch) -> None:
    """Who has recorded does not forward what was sent before."""
    _complete_without_counting(patch)
    patch.setattr(HostCore, "_report_if_late", lambda *_: None)


def complete_when_all_have_answered(patch: pytest.MonkeyPatch) -> None:
    """The observer does not count: it is satisfied when it has every state."""
    _complete_without_counting(patch)


def doubles_are_accepted_twice(patch: pytest.MonkeyPatch) -> None:
    """The link takes what comes again for something new."""
    in_order = LooseInLink.in_order

    def forgetful(self: LooseInLink, batch: Any) -> Any:
        self.seen = Numbers()
        return in_order(self, batch)

    patch.setattr(LooseInLink, "in_order", forgetful)


def channels_are_used_before_they_are_declared(patch: pytest.MonkeyPatch) -> None:
    """A batch that overtakes the one with the declarations is taken at once."""
    patch.setattr(LooseInLink, "_ready", lambda self, _: next(iter(self.early), None))


def channels_that_reorder_are_taken_for_fifo(patch: pytest.MonkeyPatch) -> None:
    """The mailbox insists on the next number."""
    patch.setattr(LooseInbox, "put", Inbox.put)


# ---- links and the collector ---------------------------------------------------------------------------------------------


def links_drop_what_comes_early(patch: pytest.MonkeyPatch) -> None:
    """A batch that overtakes another is thrown away."""
    in_order = InLink.in_order

    def drop(self: InLink, batch: Any) -> Any:
        found = in_order(self, batch)
        self.early.clear()
        return found

    patch.setattr(InLink, "in_order", drop)


def links_take_doubles_for_new(patch: pytest.MonkeyPatch) -> None:
    """A batch that comes again is delivered again."""
    in_order = InLink.in_order
    patch.setattr(InLink, "in_order", lambda self, batch: [batch] if batch[1] < self.next else in_order(self, batch))


def double_host_reports_count_twice(patch: pytest.MonkeyPatch) -> None:
    """A host's report that comes again is counted again."""
    report = PendingCounts.report

    def forgetful(self: PendingCounts, one: Any) -> Any:
        self.reported.discard(one.host)
        return report(self, one)

    patch.setattr(PendingCounts, "report", forgetful)


def complete_without_the_reports_of_all(patch: pytest.MonkeyPatch) -> None:
    """Complete when no channel lacks a message, whether or not every host has reported."""
    patch.setattr(
        PendingCounts, "is_complete", property(lambda self: bool(self.reported) and not any(self.missing.values()))
    )


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
        (barrier_does_not_block, "aligned", "is impossible here: it accepts"),
        (barrier_sent_late, "aligned", "is impossible here: it accepts"),
        (barriers_are_not_sent, "aligned", "waits for the report"),
        (barriers_stay_on_their_host, "aligned", "waits for the report"),
        (new_channels_begin_without_a_barrier, "unaligned", "a red message in a white action"),
        (red_reply_is_accepted_in_white, "unaligned", "it accepts reply"),
        (back_edges_are_not_logged, "aligned", "the channels hold"),
        (late_messages_within_a_host_are_forgotten, "aligned", "the channels hold"),
        (barriers_are_messages_in_flight, "aligned", "the channels hold"),
        (overtaken_messages_are_forgotten, "unaligned", "the channels hold"),
        (a_white_parent_has_red_creations, "aligned-births", "creations in flight are"),
        (alignment_records_inside_the_action, "aligned", "the channels hold"),
        (duplicates_are_not_counted, "at-least-once", "sent by red ones, were"),
        (duplicates_are_counted_for_the_next_snapshot_too, "at-least-once", "sent by red ones, were"),
        (number_is_not_attached, "observer", "the channels hold"),
        (number_on_a_message_is_not_heeded, "observer", "is impossible here: it accepts"),
        (number_is_forgotten_on_replies, "observer", "it accepts reply"),
        (number_is_forgotten_on_creations, "observer-everything", "creations in flight are"),
        (number_is_attached_too_early, "observer", "messages in flight from"),
        (messages_without_the_number_are_not_reported, "observer", "the channels hold"),
        (complete_when_all_have_answered, "observer", "the channels hold"),
        (doubles_are_accepted_twice, "observer", "and the channel is empty"),
        (channels_are_used_before_they_are_declared, "observer", "was declared out of turn"),
        (channels_that_reorder_are_taken_for_fifo, "observer", "arrived where"),
        (links_drop_what_comes_early, "plain", "messages in flight from"),
        (links_take_doubles_for_new, "births", "it accepts creation"),
        (double_host_reports_count_twice, "births", "the channels hold"),
        (complete_without_the_reports_of_all, "births", "the states are"),
    )
]

__all__ = ["MUTANTS", "Mutant"]
