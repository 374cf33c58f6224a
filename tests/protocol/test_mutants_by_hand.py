"""Wrong protocols that no snapshot shows, because they are unfair, unbounded or only late: a named test must catch each."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import test_barriers as barriers
import test_mail_rules as mail
import test_observer as observer
import test_traps as traps

from ray_snapshot.errors import MachineStoppedError
from ray_snapshot.protocol import barrier_host
from ray_snapshot.protocol.acceptance import Numbers
from ray_snapshot.protocol.barrier_host import BarrierCore, StreamInbox
from ray_snapshot.protocol.barriers import Alignment, BarrierQueued, Forced, Mode
from ray_snapshot.protocol.chandy_lamport import MarkerArrived
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.links import OutLink
from ray_snapshot.protocol.mailbox import Inbox

Patch = pytest.MonkeyPatch


def the_busiest_mailbox_first(patch: Patch) -> None:
    take = Inbox.take

    def greedy(self: Inbox) -> Any:
        taken = take(self)
        if self.ready:
            self.ready = deque(self.ready)
            self.ready.rotate(1)
        return taken

    patch.setattr(Inbox, "take", greedy)


def the_busiest_machine_first(patch: Patch) -> None:
    next_action = HostCore.next_action

    def greedy(self: HostCore) -> Any:
        found = next_action(self)
        self.runnable.rotate(1)
        return found

    patch.setattr(HostCore, "next_action", greedy)


def a_half_join_delays_the_boundary(patch: Patch) -> None:
    boundary = HostCore.boundary

    def waits(self: HostCore) -> Any:
        is_parked = any(any(machine.inbox.parked.values()) for machine in self.machines.values())
        return () if is_parked else boundary(self)

    patch.setattr(HostCore, "boundary", waits)


def a_backlog_delays_the_marker(patch: Patch) -> None:
    hear = HostCore.hear

    def waits(self: HostCore, event: Any) -> Any:
        is_behind = isinstance(event, MarkerArrived) and self.runnable
        return () if is_behind else hear(self, event)

    patch.setattr(HostCore, "hear", waits)


def a_full_mailbox_holds_inside_the_action(patch: Patch) -> None:
    send = HostCore.send

    def at_once(self: HostCore, machine: Any, *rest: Any) -> Any:
        channel = send(self, machine, *rest)
        machine.is_held = bool(machine.over)
        return channel

    patch.setattr(HostCore, "send", at_once)


def a_full_mailbox_holds_nobody(patch: Patch) -> None:
    patch.setattr(HostCore, "end_action", lambda *_: None)


def acceptances_release_nobody(patch: Patch) -> None:
    patch.setattr(HostCore, "_release", lambda *_: None)


def markers_are_bounded_too(patch: Patch) -> None:
    mark = OutLink.mark
    patch.setattr(OutLink, "mark", lambda self, colour: None if len(self.messages) > 1 else mark(self, colour))


def a_join_reaches_past_what_is_in_front(patch: Patch) -> None:
    def any_depth(self: Inbox, ports: tuple[str, ...]) -> Any:
        boxes = [box for box in self.mailboxes.values() if {message[2] for message in box.queue} >= set(ports)]
        return [(port, boxes[0]) for port in ports] if boxes else None

    patch.setattr(Inbox, "_chosen", any_depth)


def a_refused_send_has_its_number_already(patch: Patch) -> None:
    send = HostCore.send

    def numbered_first(self: HostCore, machine: Any, target: str, *rest: Any) -> Any:
        try:
            return send(self, machine, target, *rest)
        except MachineStoppedError:
            machine.outputs[target].sent += 1
            raise

    patch.setattr(HostCore, "send", numbered_first)


def a_number_given_up_is_kept(patch: Patch) -> None:
    def begin(self: HostCore, numbers: Any) -> None:
        self.open.update({number: self._begin(number) for number in numbers})

    patch.setattr(HostCore, "_begin_recordings", begin)


def a_child_is_born_without_a_look_at_its_mailboxes(patch: Patch) -> None:
    born = HostCore.born

    def hasty(self: HostCore, name: str, *rest: Any) -> Any:
        self.machine(name).copied = self.colour
        return born(self, name, *rest)

    patch.setattr(HostCore, "born", hasty)


# ---- barriers: what makes no snapshot wrong, but one that waits for ever, stores too much, or counts wrong ---------------


def nobody_is_unblocked_when_a_snapshot_is_given_up(patch: Patch) -> None:
    abort = HostCore.abort
    patch.setattr(BarrierCore, "abort", lambda self, number: (abort(self, number), self._forget(number))[0])


def numbers_that_nobody_wants_are_closed_not_given_up(patch: Patch) -> None:
    def welcome(self: HostCore, pending: Any, last: int) -> Any:
        for number in [number for number in self.open if number <= last and number not in pending]:
            self.close(number)
        return ()

    patch.setattr(HostCore, "welcome", welcome)


def crossing_snapshots_wait_for_each_other(patch: Patch) -> None:
    patch.setattr(Alignment, "_stuck", lambda *_: ())


def only_what_has_blocked_an_input_is_looked_at(patch: Patch) -> None:
    step = Alignment.step
    patch.setattr(Alignment, "step", lambda self, event: () if isinstance(event, BarrierQueued) else step(self, event))


def a_number_that_was_only_heard_of_ends_every_alignment(patch: Patch) -> None:
    def stuck(self: Alignment, channel: Any) -> Any:
        found = self.colours.newly_red(self.turning.due, self.known)
        return self._ask(self.known) if any(not self.colours.is_red(self.inputs[channel], n) for n in found) else ()

    patch.setattr(Alignment, "_stuck", stuck)


def an_input_is_forgotten_by_the_alignment(patch: Patch) -> None:
    awaited = Alignment._awaited_for
    patch.setattr(Alignment, "_awaited_for", lambda self, number: sorted(awaited(self, number))[:1])


def undeclared_channels_are_awaited(patch: Patch) -> None:
    patch.setattr(Alignment, "_awaited_for", lambda self, _: [*self.inputs])


def a_red_call_is_blocked(patch: Patch) -> None:
    patch.setattr(barrier_host, "CALL", "no kind of channel")


def a_half_join_holds_the_barrier_back(patch: Patch) -> None:
    patch.setattr(StreamInbox, "_is_parked", lambda *_: False)
    patch.setattr(StreamInbox, "park", Inbox.park)


def a_join_does_not_look_again_when_it_is_unblocked(patch: Patch) -> None:
    def offer_again(self: StreamInbox, mailbox: Any) -> None:
        if not self._is_parked(mailbox):
            self.offer(mailbox)

    patch.setattr(StreamInbox, "offer_again", offer_again)


def a_join_takes_what_is_behind_the_barrier(patch: Patch) -> None:
    patch.setattr(StreamInbox, "_may_take", Inbox._may_take)
    patch.setattr(BarrierCore, "_check_white", lambda *_: None)


def a_machine_that_stops_goes_on_aligning(patch: Patch) -> None:
    patch.setattr(BarrierCore, "stop", HostCore.stop)


def impatience_lasts(patch: Patch) -> None:
    def force(self: BarrierCore, number: int) -> None:
        for machine in self.machines.values():
            machine.inbox.alignment.mode = Mode.UNALIGNED
            machine.inbox.step(Forced(number))

    patch.setattr(BarrierCore, "force", force)


def blocked_messages_are_counted_when_they_are_free(patch: Patch) -> None:
    patch.setattr(StreamInbox, "blocked_count", lambda _: 0)


def barriers_count_for_every_open_snapshot(patch: Patch) -> None:
    send = BarrierCore._send_barriers
    patch.setattr(
        BarrierCore, "_send_barriers", lambda self, machine, _, colour: send(self, machine, (*self.open,), colour)
    )


def duplicates_are_kept_for_ever(patch: Patch) -> None:
    patch.setattr(StreamInbox, "forget_repeated", lambda *_: None)


def doubles_are_remembered_one_by_one(patch: Patch) -> None:
    add = Numbers.add

    def apart(self: Numbers, number: int) -> bool:
        return add(self, 2 * number)

    patch.setattr(Numbers, "add", apart)


def the_number_is_worth_a_batch_of_its_own(patch: Patch) -> None:
    patch.setattr(OutLink, "attach", OutLink.mark)


MUTANTS: dict[Callable[[Patch], None], Callable[[], None]] = {
    the_busiest_mailbox_first: mail.test_the_choice_among_mailboxes_is_fair_however_full_one_of_them_is,
    the_busiest_machine_first: mail.test_the_choice_among_machines_of_a_host_is_fair_too,
    a_half_join_delays_the_boundary: mail.test_a_lone_left_of_a_join_in_front_of_a_marker_does_not_delay_the_snapshot,
    a_backlog_delays_the_marker: mail.test_a_backlog_does_not_delay_a_marker,
    a_full_mailbox_holds_inside_the_action: (
        mail.test_a_machine_over_its_bound_is_held_back_behind_its_action_never_inside_it
    ),
    a_full_mailbox_holds_nobody: mail.test_bounds_hold_within_a_host_too,
    acceptances_release_nobody: mail.test_acceptances_at_the_other_end_release_it,
    markers_are_bounded_too: mail.test_markers_are_never_bounded,
    a_join_reaches_past_what_is_in_front: mail.test_a_join_never_reaches_past_a_message_of_the_same_channel,
    a_refused_send_has_its_number_already: traps.test_a_send_that_raises_has_sent_nothing,
    a_number_given_up_is_kept: traps.test_a_number_given_up_before_a_host_heard_of_it_is_red_there_but_not_kept,
    a_child_is_born_without_a_look_at_its_mailboxes: traps.test_what_waited_for_a_machine_to_be_born_is_in_flight,
    nobody_is_unblocked_when_a_snapshot_is_given_up: barriers.test_a_snapshot_that_is_given_up_unblocks_every_input,
    numbers_that_nobody_wants_are_closed_not_given_up: (
        barriers.test_a_host_that_is_told_that_nobody_wants_its_numbers_unblocks_every_input
    ),
    crossing_snapshots_wait_for_each_other: (
        barriers.test_a_lower_number_that_is_behind_already_when_its_input_is_blocked_does_not_wait
    ),
    only_what_has_blocked_an_input_is_looked_at: (
        barriers.test_snapshots_that_wait_for_each_other_at_one_machine_are_parted_by_their_numbers
    ),
    a_number_that_was_only_heard_of_ends_every_alignment: (
        barriers.test_on_an_acyclic_graph_there_is_no_channel_state_however_snapshots_overlap
    ),
    an_input_is_forgotten_by_the_alignment: (
        barriers.test_an_input_that_has_delivered_its_barrier_is_blocked_until_all_have
    ),
    undeclared_channels_are_awaited: barriers.test_an_undeclared_channel_counts_as_a_back_edge,
    a_red_call_is_blocked: barriers.test_a_red_call_makes_an_aligning_machine_record,
    a_half_join_holds_the_barrier_back: (
        barriers.test_a_parked_left_in_front_of_a_barrier_does_not_hold_the_barrier_back
    ),
    a_join_does_not_look_again_when_it_is_unblocked: barriers.test_a_join_looks_again_when_its_channel_is_unblocked,
    a_join_takes_what_is_behind_the_barrier: barriers.test_a_join_looks_again_when_its_channel_is_unblocked,
    a_machine_that_stops_goes_on_aligning: barriers.test_a_machine_that_stops_waits_for_no_barriers,
    impatience_lasts: (barriers.test_a_machine_that_has_lost_patience_is_unaligned_for_this_snapshot_and_for_no_other),
    blocked_messages_are_counted_when_they_are_free: (
        barriers.test_blocked_messages_and_the_time_of_alignment_are_counted_per_snapshot
    ),
    barriers_count_for_every_open_snapshot: (
        barriers.test_barriers_are_counted_for_the_snapshot_that_they_are_sent_for
    ),
    duplicates_are_kept_for_ever: barriers.test_duplicates_of_a_snapshot_that_was_given_up_are_not_kept,
    doubles_are_remembered_one_by_one: (
        observer.test_a_double_is_dropped_however_late_it_comes_and_remembering_that_costs_no_memory
    ),
    the_number_is_worth_a_batch_of_its_own: observer.test_it_sends_no_control_message_over_the_links,
}


@pytest.mark.parametrize("breaks", MUTANTS, ids=lambda breaks: breaks.__name__)
def test_its_test_catches_it(breaks: Callable[[Patch], None], monkeypatch: Patch) -> None:
    MUTANTS[breaks]()
    breaks(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        MUTANTS[breaks]()
