"""Wrong protocols that no snapshot shows, because they are unfair, unbounded or only late: a named test must catch each."""

from collections.abc import Callable

import pytest
import test_barriers as barriers
import test_mail_rules as mail
import test_observer as observer
import test_traps as traps
from making_mutants import Edit, Mutant

from ray_snapshot.protocol.acceptance import Numbers
from ray_snapshot.protocol.barrier_host import BarrierCore, StreamInbox
from ray_snapshot.protocol.barriers import Alignment
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.links import OutLink
from ray_snapshot.protocol.mailbox import Inbox

ANY_DEPTH = """\
boxes = [box for box in self.mailboxes.values() if {message[2] for message in box.queue} >= set(ports)]
return [(port, boxes[0]) for port in ports] if boxes else None"""
FRESH_ANYWHERE = """\
fresh = self.colours.newly_red(self.turning.due, self.known)
return self._ask(self.known) if any(not self.colours.is_red(self.inputs[channel], n) for n in fresh) else ()"""

BROKEN: dict[Callable[[], None], dict[str, Edit | list[Edit]]] = {
    mail.test_the_choice_among_mailboxes_is_fair_however_full_one_of_them_is: {
        "the_busiest_mailbox_first": (Inbox, "take: self.offer(mailbox) => self.ready = deque((mailbox, *self.ready))"),
    },
    mail.test_the_choice_among_machines_of_a_host_is_fair_too: {
        "the_busiest_machine_first": (HostCore, "next_action: self.runnable.append( => self.runnable.appendleft("),
    },
    mail.test_a_lone_left_of_a_join_in_front_of_a_marker_does_not_delay_the_snapshot: {
        "a_half_join_delays_the_boundary": (
            HostCore,
            "boundary: if any(any(machine.inbox.parked.values()) for machine in self.machines.values()): return ()",
        ),
    },
    mail.test_a_backlog_does_not_delay_a_marker: {
        "a_backlog_delays_the_marker": (HostCore, "hear: if isinstance(event, MarkerArrived) and self.runnable: return ()"),
    },
    mail.test_a_machine_over_its_bound_is_held_back_behind_its_action_never_inside_it: {
        "a_full_mailbox_holds_inside_the_action": (
            HostCore,
            "send: return channel => machine.is_held = bool(machine.over); return channel",
        ),
    },
    mail.test_bounds_hold_within_a_host_too: {"a_full_mailbox_holds_nobody": (HostCore, "end_action")},
    mail.test_acceptances_at_the_other_end_release_it: {"acceptances_release_nobody": (HostCore, "_release")},
    mail.test_markers_are_never_bounded: {"markers_are_bounded_too": (OutLink, "mark: if len(self.messages) > 1: return")},
    mail.test_a_join_never_reaches_past_a_message_of_the_same_channel: {
        "a_join_reaches_past_what_is_in_front": (Inbox, f"_chosen: {ANY_DEPTH}"),
    },
    traps.test_a_send_that_raises_has_sent_nothing: {
        "a_refused_send_has_its_number_already": (HostCore, "send_on: raise Machine => channel.sent += 1; raise Machine"),
    },
    traps.test_a_number_given_up_before_a_host_heard_of_it_is_red_there_but_not_kept: {
        "a_number_given_up_is_kept": (HostCore, "_begin_recordings: if number in self.closed: => if False:"),
    },
    traps.test_what_waited_for_a_machine_to_be_born_is_in_flight: {
        "a_child_is_born_without_a_look_at_its_mailboxes": (
            HostCore,
            "born: self._copy_if_due(machine) => machine.copied = self.colour",
        ),
    },
    # ---- barriers: what makes no snapshot wrong, but one that waits for ever, stores too much, or counts wrong
    barriers.test_a_snapshot_that_is_given_up_unblocks_every_input: {
        "nobody_is_unblocked_when_a_snapshot_is_given_up": (
            BarrierCore,
            "abort: if not self.turning.is_white(self.colour, number): => if False:",
        ),
    },
    barriers.test_a_host_that_is_told_that_nobody_wants_its_numbers_unblocks_every_input: {
        "numbers_that_nobody_wants_are_closed_not_given_up": (HostCore, "welcome: self.abort( => self.close("),
    },
    barriers.test_a_lower_number_that_is_behind_already_when_its_input_is_blocked_does_not_wait: {
        "crossing_snapshots_wait_for_each_other": (Alignment, "_stuck: return ()"),
    },
    barriers.test_snapshots_that_wait_for_each_other_at_one_machine_are_parted_by_their_numbers: {
        "only_what_has_blocked_an_input_is_looked_at": (Alignment, "step: if isinstance(event, BarrierQueued): return ()"),
    },
    barriers.test_on_an_acyclic_graph_there_is_no_channel_state_however_snapshots_overlap: {
        "a_number_that_was_only_heard_of_ends_every_alignment": (Alignment, f"_stuck: {FRESH_ANYWHERE}"),
    },
    barriers.test_an_input_that_has_delivered_its_barrier_is_blocked_until_all_have: {
        "an_input_is_forgotten_by_the_alignment": (
            Alignment,
            "_awaited_for: return sorted(one for one in self.awaited if self.is_awaited(one, number))[:1]",
        ),
    },
    barriers.test_an_undeclared_channel_counts_as_a_back_edge: {
        "undeclared_channels_are_awaited": (Alignment, "_awaited_for: return [*self.inputs]"),
    },
    barriers.test_a_red_call_makes_an_aligning_machine_record: {
        "a_red_call_is_blocked": (BarrierCore, "_put: mailbox.kind == CALL => False"),
    },
    barriers.test_a_parked_left_in_front_of_a_barrier_does_not_hold_the_barrier_back: {
        "a_half_join_holds_the_barrier_back": [
            (StreamInbox, "_is_parked: return False"),
            (StreamInbox, "park: return super().park(mailbox)"),
        ],
    },
    barriers.test_a_join_looks_again_when_its_channel_is_unblocked: {
        "a_join_does_not_look_again_when_it_is_unblocked": (
            StreamInbox,
            "offer_again: return None if self._is_parked(mailbox) else self.offer(mailbox)",
        ),
        "a_join_takes_what_is_behind_the_barrier": [
            (StreamInbox, "_may_take: return super()._may_take(message, ports)"),
            (BarrierCore, "_check_white"),
        ],
    },
    barriers.test_a_machine_that_stops_waits_for_no_barriers: {
        "a_machine_that_stops_goes_on_aligning": (BarrierCore, "stop: return super().stop(machine)"),
    },
    barriers.test_a_machine_that_has_lost_patience_is_unaligned_for_this_snapshot_and_for_no_other: {
        "impatience_lasts": (
            BarrierCore,
            "force: for machine in self.machines.values(): _inbox(machine).alignment.mode = Mode.UNALIGNED",
        ),
    },
    barriers.test_blocked_messages_and_the_time_of_alignment_are_counted_per_snapshot: {
        "blocked_messages_are_counted_when_they_are_free": (StreamInbox, "blocked_count: return 0"),
    },
    barriers.test_barriers_are_counted_for_the_snapshot_that_they_are_sent_for: {
        "barriers_count_for_every_open_snapshot": (BarrierCore, "_send_barriers: numbers = (*self.open,)"),
    },
    barriers.test_duplicates_of_a_snapshot_that_was_given_up_are_not_kept: {
        "duplicates_are_kept_for_ever": (StreamInbox, "forget_repeated"),
    },
    observer.test_a_double_is_dropped_however_late_it_comes_and_remembering_that_costs_no_memory: {
        "doubles_are_remembered_one_by_one": (Numbers, "add: number *= 2"),
    },
    observer.test_it_sends_no_control_message_over_the_links: {
        "the_number_is_worth_a_batch_of_its_own": (OutLink, "attach: return self.mark(colour)"),
    },
}  # fmt: skip
MUTANTS = [Mutant(name, test, "", edits) for test, broken in BROKEN.items() for name, edits in broken.items()]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_test_catches_it(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.shown_by()
    mutant.breaks(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        mutant.shown_by()
