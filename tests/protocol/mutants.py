"""Ways to break the protocol, each of which the simulator and the oracle must notice.

`shown_by` is the kind of world that shows it. The guard in `HostCore` that refuses red messages is taken out where it would
catch the mutant before the oracle can.
"""

from making_mutants import Broken, mutants

from ray_snapshot.protocol.barrier_host import BarrierCore, StreamInbox
from ray_snapshot.protocol.barriers import Alignment
from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.collector import PendingCounts
from ray_snapshot.protocol.colours import Numbered
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.copying import Copying
from ray_snapshot.protocol.host import HostCore, OutChannel
from ray_snapshot.protocol.links import InLink, OutLink
from ray_snapshot.protocol.mailbox import Inbox
from ray_snapshot.protocol.observer import LooseInbox, LooseInLink, Observer

NO_GUARD = (HostCore, "_check_white"), (HostCore, "begin_action: if self.turning.must_turn: => if False:")
NO_BARRIER_GUARD = (BarrierCore, "_check_white")
NO_COUNTING = (PendingCounts, "is_complete: return not self.awaited")

ACCEPTS, RED_REPLY = "is impossible here: it accepts", "it accepts reply"
STATES, IN_CHANNELS, IN_FLIGHT = "the states are", "the channels hold", "messages in flight from"
CREATIONS, UNREPORTED, REPEATED = "creations in flight are", "waits for the report", "sent by red ones, were"

ON_LINK = "way.messages.append((channel.index, number, method, args, now, colour))"
MARK_LATER = "self.__dict__.setdefault('kept', []).append((target, colour)); self.outputs[target].dirty = True"
MARK_NOW = "[self.outputs[target].mark(colour) for target, colour in self.__dict__.pop('kept', ())]"
FORGET = "recording.creations, recording.created, recording.arrived = [], {}, {}"
UNHEARD = """\
if isinstance(event, MarkerArrived) and any(box is not None and box.queue for box in self.inputs[event.source].mailboxes):
    self.__dict__.setdefault('unheard', []).append(event)
    return ()"""
BARRIERS_LATER = """\
if not self.__dict__.get("is_flushing"):
    self.__dict__.setdefault("kept", []).append((machine, numbers, colour))
    self.must_flush = True
    return"""
BARRIERS_NOW = """\
self.is_flushing = True
for kept in self.__dict__.pop("kept", ()):
    self._send_barriers(*kept)
self.is_flushing = False"""

BROKEN: Broken = {
    ("initiators", ACCEPTS): {
        # The marker goes onto the link behind the next batch, and so behind what was sent meanwhile.
        "marker_behind_the_first_red_message": [
            *NO_GUARD,
            (HostCore, f"_carry_out: self.outputs[target].mark(colour) => {MARK_LATER}"),
            (HostCore, f"take_batches: return found => {MARK_NOW}; return found"),
        ],
        # The host records, but accepts one more message first.
        "boundary_later": [
            *NO_GUARD,
            (
                HostCore,
                "boundary: self.asked = self.__dict__.get('asked', 0) + self.must_record\nif self.asked % 3: return ()",
            ),
        ],
    },
    ("plain", ACCEPTS): {
        # A marker ends its input, but does not make the host record: only the coordinator's request does.
        "marker_does_not_make_red": [
            *NO_GUARD,
            (ChandyLamport, "_marker: [*asked_for(self.turning.hear(colour))] => []"),
        ],
        # A mailbox is a stack, under its head.
        "mailboxes_in_any_order": (
            Inbox,
            "put: if is_head:\n => mailbox.queue = deque((mailbox.queue[-1], *[*mailbox.queue][:-1]))\n    if is_head:\n",
        ),
    },
    ("bounded", ACCEPTS): {
        # A marker is handled when all that lies in front of it has been accepted, not on arrival.
        "marker_waits_for_its_turn": [
            *NO_GUARD,
            (HostCore, f"hear: {UNHEARD}"),
            (HostCore, "next_action: for event in self.__dict__.pop('unheard', []): self.hear(event)"),
        ],
    },
    ("plain", IN_FLIGHT): {
        # Who records n records n alone (trap 2).
        "lower_numbers_are_not_recorded": (Numbered, "newly_red: return (new,) if new > old else ()"),
        # White messages that arrive at a red host are not reported.
        "late_messages_are_dropped": (HostCore, "_report_if_late"),
        # A batch that overtakes another is thrown away.
        "links_drop_what_comes_early": (InLink, "in_order: self.early[batch[1]] = batch => pass"),
    },
    # A number that was given up is given out again.
    ("calls", UNREPORTED): {"numbers_are_used_again": (Coordinator, "abort: self.last -= number == self.last")},
    ("plain", IN_CHANNELS): {
        # A machine of a red host stays white until it is copied, and goes on acting as such (trap 1).
        "host_turns_red_one_machine_at_a_time": [*NO_GUARD, (HostCore, "_copy_if_due")],
        # The copy takes its mailboxes whole, whatever colour is in them.
        "copy_holds_red_messages": (Copying, "copy_of: is_white(colour, number) => True"),
        # The copy refers to the live mailboxes, which go on changing (trap 8).
        "copy_shares_the_mailbox": (
            Copying,
            "copy_of: return found => found.queued = {box: box.queue for box in found.boxes}; return found",
        ),
        # A snapshot is complete once every host has reported; white messages that arrive later are forgotten.
        "recording_closed_early": NO_COUNTING,
        # A white message is reported late though its machine is still to be copied, with it.
        "late_whether_copied_or_not": (
            HostCore,
            "_report_if_late:  and not self.turning.is_white(machine.copied, number) => ",
        ),
        # A late report that comes twice is counted twice, and hides a message that is missing.
        "double_reports_count_twice": (PendingCounts, "late: self.late_reports.clear()"),
    },
    # A red reply is accepted by a white machine (trap 4, in the protocol).
    ("calls", RED_REPLY): {"reply_does_not_make_red": (HostCore, "note: return ()")},
    # A machine may act before it is copied: the copy holds what red actions did (trap 6).
    ("plain", STATES): {"copy_after_the_next_action": (HostCore, "_copy_if_due")},
    # A machine leaves its wait, and its state changes, before it is copied (trap 6).
    ("calls", STATES): {"resumed_without_a_copy": (HostCore, "resume: self._copy_if_due(machine) => pass")},
    ("names", IN_CHANNELS): {
        # A timer fires before its machine is copied: it is in no copy, and its message is red.
        "fired_without_a_copy": (HostCore, "fire: self._copy_if_due(channel.owner) => pass"),
        # What was held or timed keeps the colour in which it was sent, and is found in flight again where it arrives.
        "held_messages_are_recorded_twice": [
            (HostCore, "_dispatch: sent_at, _ = => sent_at, colour ="),
            (HostCore, "_dispatch: self.colour_of(channel.owner) => colour"),
        ],
        # What waits at its sender is recorded by nobody.
        "held_messages_are_lost": (OutChannel, "waiting: return []"),
    },
    # A name is found before its sender is copied: what was held for it is in no copy.
    ("names", IN_FLIGHT): {"resolved_without_a_copy": (HostCore, "resolve: self._copy_if_due(channel.owner) => pass")},
    ("plain", "out of turn"): {
        # The link takes batches as they come.
        "batches_in_any_order": [*NO_GUARD, (InLink, "in_order: return [batch]")],
    },
    ("births", CREATIONS): {
        # A creation in flight at the cut is recorded by nobody, and nobody counts creations (trap 3).
        "white_creation_forgotten": (
            HostCore,
            f"_begin: return recording => {FORGET}; return recording",
        ),
        # The collector's list of hosts is fixed at the start, and creations are not counted (trap 3).
        "new_hosts_are_not_waited_for": [
            (PendingCounts, "expect"),
            (PendingCounts, "_count: counts = {key: n for key, n in counts.items() if key[2] != 'creation'}"),
            (PendingCounts, "is_complete:  and not self.unheard => "),
        ],
    },
    ("births", "more in its cut than was sent"): {
        # A creation that arrived behind the marker is counted as arrived inside the cut.
        "red_creations_are_counted": (HostCore, "_begin: arrived[birth.source] -= 1 => pass"),
    },
    # A host that is born red is not told which numbers are open: white messages that reach it are missed.
    ("newcomers", IN_FLIGHT): {"host_born_red_knows_nothing": (HostCore, "__init__: open_at_birth = ()")},
    ("births", IN_CHANNELS): {
        # A machine is born without a look at what was in its mailboxes at the cut.
        "body_before_its_mailbox_is_copied": (
            HostCore,
            "born: self._copy_if_due(machine) => machine.copied = self.colour",
        ),
        # A host's report that comes again is counted again.
        "double_host_reports_count_twice": (PendingCounts, "report: self.reported.discard(report.host)"),
    },
    ("aligned", ACCEPTS): {
        # What comes behind a barrier is accepted while others are awaited, as if alignment were not skipped (trap 13).
        "barrier_does_not_block": [NO_BARRIER_GUARD, (Alignment, "is_blocked: return False")],
        # Barriers go out when the links are next emptied, behind what was sent meanwhile; that bears no colour.
        "barrier_sent_late": [
            NO_BARRIER_GUARD,
            (BarrierCore, f"_send_barriers: {BARRIERS_LATER}"),
            (HostCore, f"take_batches: {BARRIERS_NOW}"),
            (
                HostCore,
                "send_on: colour = machine.copied => kept = self.__dict__.get('kept', ())\n"
                "    colour = 0 if machine in [one[0] for one in kept] else machine.copied",
            ),
        ],
    },
    ("aligned", UNREPORTED): {
        # A machine records and tells nobody: who awaits its barrier waits for ever.
        "barriers_are_not_sent": (BarrierCore, "_send_barriers"),
        # Barriers reach the machines of the same host only.
        "barriers_stay_on_their_host": (BarrierCore, "_put_barrier: way.messages.append(barrier) => return False"),
    },
    ("unaligned", "a red message in a white action"): {
        # A channel that a red machine opens, and that is awaited or not, says nothing of it.
        "new_channels_begin_without_a_barrier": (BarrierCore, "_redder: return self.hear(NumberSeen(message[COLOUR]))"),
    },
    ("unaligned", RED_REPLY): {
        # A red reply does not force its reader (traps 4 and 13).
        "red_reply_is_accepted_in_white": (BarrierCore, "note: _inbox(found).step(Forced(colour)) => pass"),
    },
    ("aligned", IN_CHANNELS): {
        # What is white on an input that nobody awaits, and comes after the record, is forgotten.
        "back_edges_are_not_logged": [
            NO_COUNTING,
            (
                HostCore,
                "_report_if_late: if (mailbox.source, mailbox.kind) not in machine.inbox.alignment.awaited: return",
            ),
        ],
        # No count would miss them: between two machines of a host that record one after the other.
        "late_messages_within_a_host_are_forgotten": (HostCore, "_report_if_late: if mailbox.link is None: return"),
        # The copy holds what lies in the mailboxes, the barriers of other snapshots among it.
        "barriers_are_messages_in_flight": (BarrierCore, "_copy: return self.copying.copy_of(machine, number, extra)"),
        # The state is copied though the machine is in the middle of an action (trap 6).
        "alignment_records_inside_the_action": (BarrierCore, "_copy_if_due: machine is self.acting or  => "),
    },
    ("unaligned", IN_CHANNELS): {
        # Unaligned, and what the barrier overtook is not stored.
        "overtaken_messages_are_forgotten": [
            NO_COUNTING,
            (BarrierCore, "_copy: return found => found.queued = {}; return found"),
        ],
    },
    ("aligned-births", CREATIONS): {
        # What a white machine creates on a host that has heard of the number is left out (trap 3).
        "a_white_parent_has_red_creations": (
            BarrierCore,
            "create: return super().create(creator, child, host, payload, now)",
        ),
    },
    ("at-least-once", REPEATED): {
        # With alignment skipped, nobody knows what a restore will repeat.
        "duplicates_are_not_counted": NO_BARRIER_GUARD,
        # What was repeated for n counts again for whoever records next.
        "duplicates_are_counted_for_the_next_snapshot_too": [
            (StreamInbox, "forget_repeated"),
            (
                BarrierCore,
                "_copy: {key: count for => {key: sum(repeated[one] for one in repeated if one[0] == key) for",
            ),
        ],
    },
    ("observer", IN_CHANNELS): {
        # Whoever has recorded goes on sending as before.
        "number_is_not_attached": [
            (HostCore, "send_on: " + ON_LINK + " => " + ON_LINK.replace("colour", "0")),
            (OutLink, "attach"),
        ],
        # Who has recorded does not forward what was sent before.
        "messages_without_the_number_are_not_reported": [NO_COUNTING, (HostCore, "_report_if_late")],
        # The observer does not count: it is satisfied when it has every state.
        "complete_when_all_have_answered": NO_COUNTING,
    },
    ("observer", ACCEPTS): {
        # A message that bears the number does not make its receiver record.
        "number_on_a_message_is_not_heeded": [
            *NO_GUARD,
            (Observer, "step: return asked_for(self.turning.hear(colour)) => return ()"),
        ],
    },
    # Replies bear no number (trap 4).
    ("observer", RED_REPLY): {"number_is_forgotten_on_replies": (HostCore, "note: return ()")},
    ("observer-everything", CREATIONS): {
        # A creation behind the record looks as if it were inside the cut (trap 3).
        "number_is_forgotten_on_creations": (HostCore, "create: now, colour)) => now, 0))"),
    },
    ("observer", IN_FLIGHT): {
        # What is sent between the request and the record bears the number already.
        "number_is_attached_too_early": (
            HostCore,
            "send_on: " + ON_LINK + " => " + ON_LINK.replace("colour", "self.turning.due"),
        ),
    },
    ("observer", "and the channel is empty"): {
        # The link takes what comes again for something new.
        "doubles_are_accepted_twice": (LooseInLink, "in_order: self.seen = Numbers()"),
    },
    ("observer", "was declared out of turn"): {
        # A batch that overtakes the one with the declarations is taken at once.
        "channels_are_used_before_they_are_declared": (LooseInLink, "_ready: return next(iter(self.early), None)"),
    },
    ("observer", "arrived where"): {
        # The mailbox insists on the next number.
        "channels_that_reorder_are_taken_for_fifo": (LooseInbox, "put: return super().put(mailbox, message)"),
    },
    ("births", "it accepts creation"): {
        # A batch that comes again is delivered again.
        "links_take_doubles_for_new": (InLink, "in_order: if batch[1] < self.next: return [batch]"),
    },
    ("births", STATES): {
        # Complete when no channel lacks a message, whether or not every host has reported.
        "complete_without_the_reports_of_all": (
            PendingCounts,
            "is_complete: return bool(self.reported) and not any(self.missing.values())",
        ),
    },
}
MUTANTS = mutants(BROKEN)
