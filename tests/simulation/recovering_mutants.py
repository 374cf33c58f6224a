"""Ways to decide wrongly what a recovering system goes back to, each of which some order must show.

A mutant changes `protocol.recovery_line`, or where the world asks it. `shown_by` is a small world in which it goes wrong.
"""

from typing import Any

import pytest
from making_mutants import Broken, mutants
from worlds.rollback import recovering
from worlds.rollback.recovering import RecoveringWorld
from worlds.rollback.recovering_parties import Script

from ray_snapshot.protocol.recovery_line import Allowance, Base, DriverLine, Retention, ServiceLine

QUIET = Script(1, 2)
SERVICE, HOST = Script(1, 1, ("service",)), Script(1, 1, ("host",))
ANALYST, HOST_AND_ANALYST = Script(0, 1, ("analyst",)), Script(0, 1, ("host", "analyst"))
ANALYST_AND_RESTORE = Script(0, 1, ("analyst",), restores=1)
SERVICE_AND_HOST = Script(1, 1, ("service", "host"))
PROMISED, LOSES, EFFECT, UNSAID = "was promised, and", "would lose messages", "in effect are", "nobody says whether"
TWICE, GONE, NOT_WITH_DRIVER = "is used twice", "with the analyst it is not", "with the driver it is not"


def the_driver_moves_when_the_service_has_agreed(patch: pytest.MonkeyPatch) -> None:
    secured, answered = RecoveringWorld._secured, RecoveringWorld._answered
    move_to, held = DriverLine.move_to, dict[str, Base]()

    def later(self: RecoveringWorld, *args: Any) -> None:
        patch.setattr(DriverLine, "move_to", lambda _, base: held.update({base.snapshot_id: base}))
        secured(self, *args)
        patch.setattr(DriverLine, "move_to", move_to)

    def then(self: RecoveringWorld) -> None:
        base = held.get(recovering.newest(self.driver.found).snapshot_id)
        if self.agreement and base is not None:
            move_to(self.driver.line, base)
        answered(self)

    patch.setattr(RecoveringWorld, "_secured", later)
    patch.setattr(RecoveringWorld, "_answered", then)


BROKEN: Broken = {
    # ---- the service
    (QUIET, PROMISED): {
        # What comes late takes everybody back.
        "the_service_moves_backwards": (
            ServiceLine,
            "secured: return Agreement.ALREADY => self.number, self.snapshot_id = found.number, found.snapshot_id\n"
            "        return Agreement.ALREADY",
        ),
        # The analyst's word is enough.
        "what_is_kept_is_promised_at_once": (
            ServiceLine,
            "outcome: return False if number in self.refused else None => return number not in self.refused",
        ),
    },
    (HOST, LOSES): {
        # What was kept in a generation that is being left moves the line.
        "the_service_agrees_while_it_goes_back": (
            ServiceLine,
            "secured:  or found.generation != generation or is_rolling => ",
        ),
        # It is enough that the driver has made sure.
        "the_journal_is_cut_before_the_service_agrees": (
            RecoveringWorld,
            "_secured: driver.is_asking = True => driver.is_asking = True\n"
            "        driver.journal = outside(driver.journal, driver.line.base.number)",
        ),
        # Any answer is taken for yes.
        "the_journal_is_cut_whatever_the_service_says": (RecoveringWorld, "_answered: self.agreement = True"),
        # What is outside the snapshot is lost.
        "nothing_is_sent_again": (recovering, "sent_again: return []"),
    },
    (QUIET, UNSAID): {
        # Only the snapshot that is gone back to is promised.
        "what_was_overtaken_is_not_kept": (
            ServiceLine,
            "outcome: return True => return True if number == self.number else None",
        ),
    },
    (ANALYST, UNSAID): {
        # Nobody hears that the driver could not make sure.
        "what_was_lost_is_waited_for": (ServiceLine, "secured: self.refused.append(found.number) => pass"),
    },
    (Script(0, 2, ("service",)), TWICE): {
        # To ask for more is to have them.
        "numbers_are_given_out_before_the_driver_knows": (
            Allowance,
            "asked: self.more = number, place => self.most = number",
        ),
    },
    (SERVICE, TWICE): {
        # Not behind what may have been given out.
        "a_new_life_begins_behind_what_was_recorded": (
            Allowance,
            "take_over: self.most = numbers; return numbers - self.block",
        ),
    },
    # ---- the driver
    (Script(0, 2, ("service",), has_history=True), PROMISED): {
        # What comes late is its base.
        "the_driver_moves_backwards": (DriverLine, "wants: return True"),
    },
    # What was sent behind the recording is taken to be in it.
    (QUIET, LOSES): {"the_journal_is_cut_a_snapshot_too_far": (recovering, "outside: number += 1")},
    # It grows for ever.
    (QUIET, "kept for ever"): {"the_journal_is_never_cut": (recovering, "outside: return [*journal]")},
    # Also what is in the snapshot.
    (HOST, EFFECT): {"all_is_sent_again": (recovering, "sent_again: again_from = again_from and 0")},
    (Script(1, 1, restores=1), EFFECT): {
        # Though the program asked for it.
        "what_a_restore_has_undone_is_sent_again": (recovering, "sent_again: again_from = again_from or 0"),
    },
    (HOST_AND_ANALYST, NOT_WITH_DRIVER): {
        # One copy is enough.
        "the_former_is_forgotten": (DriverLine, "move_to: self.base = base; return"),
        # The analyst will have it.
        "going_back_forgets_the_copy": (
            DriverLine,
            "went_back: self.base, self.former = Base(snapshot_id, number), (); return",
        ),
    },
    (Script(0, 2, ("service", "analyst")), NOT_WITH_DRIVER): {
        # The service may have agreed to the one before that, and its answer was lost.
        "only_the_last_one_before_is_kept": (
            DriverLine,
            "move_to: (*self.former, self.base) => self.former or (self.base,)",
        ),
    },
    (HOST_AND_ANALYST, "it is not"): {
        # The service may go back to the former one still.
        "the_next_analyst_is_told_of_the_base_alone": (DriverLine, "copies: is not None] => is not None][-1:]"),
    },
    (SERVICE, PROMISED): {
        # The service first: whoever dies in between takes what was promised along.
        "the_driver_moves_when_the_service_has_agreed": the_driver_moves_when_the_service_has_agreed,
    },
    (SERVICE_AND_HOST, EFFECT): {
        # A snapshot of a past that was given up becomes its base.
        "the_driver_ignores_generations": (DriverLine, "secure: found.generation != generation or is_rolling => False"),
    },
    (ANALYST, GONE): {
        # Though the one that has begun since was not told of it.
        "a_copy_of_a_dead_analyst_counts": (DriverLine, "secure: lent_by = self.analyst_life"),
        # That the analyst has kept it is enough.
        "a_missing_copy_counts": (DriverLine, "secure: checkpoint = checkpoint or found.number"),
        # It goes with the next snapshot.
        "what_a_dead_analyst_had_kept_is_not_held": (Retention, "recall"),
    },
    (Script(0, 2, has_history=True), UNSAID): {
        # Of snapshots that come at once the first is made sure, and nobody hears of the others.
        "the_oldest_counts": (recovering, "newest: return min(found, key=lambda one: one.number)"),
    },
    # The next life of the service goes back to what is given up.
    (Script(1, 1, ("service",), restores=1), EFFECT): {"going_back_does_not_move_the_base": (DriverLine, "went_back")},
    (ANALYST_AND_RESTORE, NOT_WITH_DRIVER): {
        # The analyst has it.
        "what_is_restored_is_not_held_by_the_driver": (DriverLine, "seek: return True"),
        # The base may move before anybody stops.
        "what_is_restored_is_held_by_being_the_base": (
            DriverLine,
            "seek: if not self.must_seek(found.snapshot_id): return True",
        ),
    },
    # A question that was not heard stays without an answer.
    (Script(0, 1, hiccups=1), UNSAID): {"nobody_asks_again": (DriverLine, "asks_again: return False")},
    # ---- the analyst
    # What is gone back to goes like any other.
    (QUIET, GONE): {"nothing_is_pinned": (Retention, "pin")},
    # What it has a copy of goes before it is pinned.
    (Script(0, 2), GONE): {"nothing_is_held_for_the_driver": (Retention, "lend")},
    (Script(0, 3), GONE): {
        # The service's word about the one before is still on its way.
        "only_the_last_one_lent_is_held": (
            Retention,
            "lend: self.lent.append(snapshot_id) => self.lent = [snapshot_id]",
        ),
    },
    # It was there when it was looked at.
    (Script(0, 2, restores=1), GONE): {"what_is_being_gone_back_to_is_not_held": (Retention, "plan")},
}
MUTANTS = mutants(BROKEN)
