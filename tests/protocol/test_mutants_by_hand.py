"""Wrong protocols that no snapshot shows, because they are unfair, unbounded or only late: a named test must catch each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import test_mail_rules as mail
import test_traps as traps

from ray_snapshot.errors import MachineStoppedError
from ray_snapshot.protocol.chandy_lamport import MarkerArrived
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.links import OutLink
from ray_snapshot.protocol.mailbox import Inbox

Patch = pytest.MonkeyPatch


def the_busiest_mailbox_first(patch: Patch) -> None:
    take = Inbox.take

    def greedy(self: Inbox) -> Any:
        taken = take(self)
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
            machine.outputs[target, "mail"].sent += 1
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
}


@pytest.mark.parametrize("breaks", MUTANTS, ids=lambda breaks: breaks.__name__)
def test_its_test_catches_it(breaks: Callable[[Patch], None], monkeypatch: Patch) -> None:
    MUTANTS[breaks]()
    breaks(monkeypatch)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        MUTANTS[breaks]()
