"""Ways to decide wrongly what a recovering system goes back to, each of which some order must show.

A mutant changes `protocol.recovery_line`, or where the world asks it, through pytest's monkeypatch, so that it ends with its
test. `script` is a small world in which it goes wrong, `seen_by` a part of what the oracle says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from worlds.rollback import recovering
from worlds.rollback.recovering import RecoveringWorld
from worlds.rollback.recovering_parties import Script

from ray_snapshot.protocol.recovery_line import (
    Agreement,
    Allowance,
    Base,
    DriverLine,
    KeptSnapshot,
    Retention,
    ServiceLine,
    outside,
    sent_again,
)

Patch = pytest.MonkeyPatch

QUIET = Script(1, 2)
SERVICE, HOST = Script(1, 1, ("service",)), Script(1, 1, ("host",))
ANALYST, HOST_AND_ANALYST = Script(0, 1, ("analyst",)), Script(0, 1, ("host", "analyst"))
ANALYST_AND_RESTORE = Script(0, 1, ("analyst",), restores=1)
SERVICE_AND_HOST = Script(1, 1, ("service", "host"))


@dataclass(frozen=True)
class Mutant:
    """One wrong decision."""

    breaks: Callable[[Patch], None]
    script: Script
    seen_by: str

    @property
    def name(self) -> str:
        return self.breaks.__name__


# ---- the service ------------------------------------------------------------------------------------------------------


def the_service_moves_backwards(patch: Patch) -> None:
    """What comes late takes everybody back."""
    secured = ServiceLine.secured

    def moved(self: ServiceLine, found: KeptSnapshot, *args: Any, **named: Any) -> Agreement:
        agreement = secured(self, found, *args, **named)
        if agreement is Agreement.ALREADY:
            self.snapshot_id, self.number = found.snapshot_id, found.number
        return agreement

    patch.setattr(ServiceLine, "secured", moved)


def the_service_agrees_while_it_goes_back(patch: Patch) -> None:
    """What was kept in a generation that is being left moves the line."""
    secured = ServiceLine.secured
    patch.setattr(
        ServiceLine,
        "secured",
        lambda self, found, generation, *, is_rolling, is_safe: secured(
            self, found, found.generation, is_rolling=False, is_safe=is_safe
        ),
    )


def what_was_overtaken_is_not_kept(patch: Patch) -> None:
    """Only the snapshot that is gone back to is promised."""
    outcome = ServiceLine.outcome

    def exact(self: ServiceLine, number: int, *args: Any, **named: Any) -> bool | None:
        found = outcome(self, number, *args, **named)
        return None if found and number != self.number else found

    patch.setattr(ServiceLine, "outcome", exact)


def what_is_kept_is_promised_at_once(patch: Patch) -> None:
    """The analyst's word is enough."""
    outcome = ServiceLine.outcome

    def at_once(self: ServiceLine, *args: Any, **named: Any) -> bool | None:
        return outcome(self, *args, **named) is not False

    patch.setattr(ServiceLine, "outcome", at_once)


def what_was_lost_is_waited_for(patch: Patch) -> None:
    """Nobody hears that the driver could not make sure."""
    secured = ServiceLine.secured

    def forgetful(self: ServiceLine, *args: Any, **named: Any) -> Agreement:
        agreement = secured(self, *args, **named)
        self.refused.clear()
        return agreement

    patch.setattr(ServiceLine, "secured", forgetful)


def numbers_are_given_out_before_the_driver_knows(patch: Patch) -> None:
    """To ask for more is to have them."""

    def asked(self: Allowance, number: int, _: int) -> None:
        self.most = number

    patch.setattr(Allowance, "asked", asked)


def a_new_life_begins_behind_what_was_recorded(patch: Patch) -> None:
    """Not behind what may have been given out."""

    def take_over(self: Allowance, numbers: int) -> int:
        self.most = numbers
        return numbers - self.block

    patch.setattr(Allowance, "take_over", take_over)


# ---- the driver -------------------------------------------------------------------------------------------------------


def the_driver_moves_backwards(patch: Patch) -> None:
    """What comes late is its base."""
    patch.setattr(DriverLine, "wants", lambda *_: True)


def the_journal_is_cut_before_the_service_agrees(patch: Patch) -> None:
    """It is enough that the driver has made sure."""
    secured = RecoveringWorld._secured

    def cut(self: RecoveringWorld, *args: Any) -> None:
        secured(self, *args)
        base = self.driver.line.base
        assert base is not None
        self.driver.journal = outside(self.driver.journal, base.number)

    patch.setattr(RecoveringWorld, "_secured", cut)


def the_journal_is_cut_whatever_the_service_says(patch: Patch) -> None:
    """Any answer is taken for yes."""
    answered = RecoveringWorld._answered

    def cut(self: RecoveringWorld) -> None:
        self.agreement = True
        answered(self)

    patch.setattr(RecoveringWorld, "_answered", cut)


def the_journal_is_cut_a_snapshot_too_far(patch: Patch) -> None:
    """What was sent behind the recording is taken to be in it."""
    patch.setattr(recovering, "outside", lambda journal, number: outside(journal, number + 1))


def the_journal_is_never_cut(patch: Patch) -> None:
    """It grows for ever."""
    patch.setattr(recovering, "outside", lambda journal, _: [*journal])


def all_is_sent_again(patch: Patch) -> None:
    """Also what is in the snapshot."""
    patch.setattr(recovering, "sent_again", lambda journal, again_from: sent_again(journal, again_from and 0))


def nothing_is_sent_again(patch: Patch) -> None:
    """What is outside the snapshot is lost."""
    patch.setattr(recovering, "sent_again", lambda *_: [])


def what_a_restore_has_undone_is_sent_again(patch: Patch) -> None:
    """Though the program asked for it."""
    patch.setattr(recovering, "sent_again", lambda journal, again_from: sent_again(journal, again_from or 0))


def the_former_is_forgotten(patch: Patch) -> None:
    """One copy is enough."""

    def move_to(self: DriverLine, base: Base) -> None:
        self.base = base

    patch.setattr(DriverLine, "move_to", move_to)


def only_the_last_one_before_is_kept(patch: Patch) -> None:
    """The service may have agreed to the one before that, and its answer was lost."""

    def move_to(self: DriverLine, base: Base) -> None:
        former = self.former or ((self.base,) if self.base is not None else ())
        self.former, self.base = former, base

    patch.setattr(DriverLine, "move_to", move_to)


def the_next_analyst_is_told_of_the_base_alone(patch: Patch) -> None:
    """The service may go back to the former one still."""
    copies = DriverLine.copies
    patch.setattr(DriverLine, "copies", lambda self: copies(self)[-1:])


def the_driver_moves_when_the_service_has_agreed(patch: Patch) -> None:
    """The service first: whoever dies in between takes what was promised along."""
    secured, answered = RecoveringWorld._secured, RecoveringWorld._answered
    move_to = DriverLine.move_to
    held: dict[str, Base] = {}

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


def the_driver_ignores_generations(patch: Patch) -> None:
    """A snapshot of a past that was given up becomes its base."""
    secure = DriverLine.secure
    patch.setattr(
        DriverLine,
        "secure",
        lambda self, found, copy, lent_by, *_, **__: secure(
            self, found, copy, lent_by, found.generation, is_rolling=False
        ),
    )


def a_copy_of_a_dead_analyst_counts(patch: Patch) -> None:
    """Though the one that has begun since was not told of it."""
    secure = DriverLine.secure
    patch.setattr(
        DriverLine,
        "secure",
        lambda self, found, copy, _, generation, **named: secure(
            self, found, copy, self.analyst_life, generation, **named
        ),
    )


def a_missing_copy_counts(patch: Patch) -> None:
    """That the analyst has kept it is enough."""
    secure = DriverLine.secure
    patch.setattr(
        DriverLine,
        "secure",
        lambda self, found, copy, *args, **named: secure(self, found, copy or found.number, *args, **named),
    )


def the_oldest_counts(patch: Patch) -> None:
    """Of snapshots that come at once the first is made sure, and nobody hears of the others."""
    patch.setattr(recovering, "newest", lambda found: min(found, key=lambda one: one.number))


def going_back_forgets_the_copy(patch: Patch) -> None:
    """The analyst will have it."""

    def went_back(self: DriverLine, snapshot_id: str, number: int) -> None:
        self.base, self.former = Base(snapshot_id, number), ()

    patch.setattr(DriverLine, "went_back", went_back)


def going_back_does_not_move_the_base(patch: Patch) -> None:
    """The next life of the service goes back to what is given up."""
    patch.setattr(DriverLine, "went_back", lambda *_: None)


def what_is_restored_is_not_held_by_the_driver(patch: Patch) -> None:
    """The analyst has it."""
    patch.setattr(DriverLine, "seek", lambda *_: True)


def what_is_restored_is_held_by_being_the_base(patch: Patch) -> None:
    """The base may move before anybody stops."""
    seek = DriverLine.seek

    def unless_known(self: DriverLine, found: Base, lent_by: int) -> bool:
        return not self.must_seek(found.snapshot_id) or seek(self, found, lent_by)

    patch.setattr(DriverLine, "seek", unless_known)


def nobody_asks_again(patch: Patch) -> None:
    """A question that was not heard stays without an answer."""
    patch.setattr(DriverLine, "asks_again", lambda *_, **__: False)


# ---- the analyst ------------------------------------------------------------------------------------------------------


def nothing_is_pinned(patch: Patch) -> None:
    """What is gone back to goes like any other."""
    patch.setattr(Retention, "pin", lambda *_: None)


def nothing_is_held_for_the_driver(patch: Patch) -> None:
    """What it has a copy of goes before it is pinned."""
    patch.setattr(Retention, "lend", lambda *_: None)


def only_the_last_one_lent_is_held(patch: Patch) -> None:
    """The service's word about the one before is still on its way."""

    def lend(self: Retention, snapshot_id: str) -> None:
        self.lent = [snapshot_id]

    patch.setattr(Retention, "lend", lend)


def what_is_being_gone_back_to_is_not_held(patch: Patch) -> None:
    """It was there when it was looked at."""
    patch.setattr(Retention, "plan", lambda *_: None)


def what_a_dead_analyst_had_kept_is_not_held(patch: Patch) -> None:
    """It goes with the next snapshot."""
    patch.setattr(Retention, "recall", lambda *_: None)


PROMISED, LOSES, EFFECT, GONE = (
    "was promised, and",
    "would lose messages",
    "in effect are",
    "with the analyst it is not",
)
MUTANTS = [
    Mutant(the_service_moves_backwards, QUIET, PROMISED),
    Mutant(the_service_agrees_while_it_goes_back, HOST, LOSES),
    Mutant(what_was_overtaken_is_not_kept, QUIET, "nobody says whether"),
    Mutant(what_is_kept_is_promised_at_once, QUIET, PROMISED),
    Mutant(what_was_lost_is_waited_for, ANALYST, "nobody says whether"),
    Mutant(numbers_are_given_out_before_the_driver_knows, Script(0, 2, ("service",)), "is used twice"),
    Mutant(a_new_life_begins_behind_what_was_recorded, SERVICE, "is used twice"),
    Mutant(the_driver_moves_backwards, Script(0, 2, ("service",), has_history=True), PROMISED),
    Mutant(the_journal_is_cut_before_the_service_agrees, HOST, LOSES),
    Mutant(the_journal_is_cut_whatever_the_service_says, HOST, LOSES),
    Mutant(the_journal_is_cut_a_snapshot_too_far, QUIET, LOSES),
    Mutant(the_journal_is_never_cut, QUIET, "kept for ever"),
    Mutant(all_is_sent_again, HOST, EFFECT),
    Mutant(nothing_is_sent_again, HOST, LOSES),
    Mutant(what_a_restore_has_undone_is_sent_again, Script(1, 1, restores=1), EFFECT),
    Mutant(the_former_is_forgotten, HOST_AND_ANALYST, "with the driver it is not"),
    Mutant(only_the_last_one_before_is_kept, Script(0, 2, ("service", "analyst")), "with the driver it is not"),
    Mutant(the_next_analyst_is_told_of_the_base_alone, HOST_AND_ANALYST, "it is not"),
    Mutant(the_driver_moves_when_the_service_has_agreed, SERVICE, PROMISED),
    Mutant(the_driver_ignores_generations, SERVICE_AND_HOST, EFFECT),
    Mutant(a_copy_of_a_dead_analyst_counts, ANALYST, GONE),
    Mutant(a_missing_copy_counts, ANALYST, GONE),
    Mutant(the_oldest_counts, Script(0, 2, has_history=True), "nobody says whether"),
    Mutant(going_back_forgets_the_copy, HOST_AND_ANALYST, "with the driver it is not"),
    Mutant(going_back_does_not_move_the_base, Script(1, 1, ("service",), restores=1), EFFECT),
    Mutant(what_is_restored_is_not_held_by_the_driver, ANALYST_AND_RESTORE, "with the driver it is not"),
    Mutant(what_is_restored_is_held_by_being_the_base, ANALYST_AND_RESTORE, "with the driver it is not"),
    Mutant(nobody_asks_again, Script(0, 1, hiccups=1), "nobody says whether"),
    Mutant(nothing_is_pinned, QUIET, GONE),
    Mutant(nothing_is_held_for_the_driver, Script(0, 2), GONE),
    Mutant(only_the_last_one_lent_is_held, Script(0, 3), GONE),
    Mutant(what_is_being_gone_back_to_is_not_held, Script(0, 2, restores=1), GONE),
    Mutant(what_a_dead_analyst_had_kept_is_not_held, ANALYST, GONE),
]
