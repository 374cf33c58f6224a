"""Ways to keep what was recorded of a machine for too long, each with a small program in which it goes wrong.

A mutant changes how a host knows which machines have not acted, through pytest's monkeypatch, so that it ends with its test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from resting import Asked, Flat, Joined, Listener, Lively, Resting, Step, Telling, Trusted, Volatile, Wanting

from ray_snapshot import encoding_many, redaction
from ray_snapshot.protocol.copying import Copying
from ray_snapshot.runtime import checkpointing
from ray_snapshot.runtime.host import alone, copier, post, reporter, resting, unchanged
from ray_snapshot.runtime.host.at_rest import AtRest
from ray_snapshot.runtime.host.copier import Copier
from ray_snapshot.runtime.host.resting import RestingRows, Rows
from ray_snapshot.runtime.host.unchanged import Unchanged

Patch = pytest.MonkeyPatch
TWICE: tuple[Step, ...] = (("snapshot",), ("snapshot",))
ONCE: tuple[Step, ...] = (("snapshot",),)


@dataclass(frozen=True)
class Mutant:
    """One copy that holds for too long."""

    breaks: Callable[[Patch], None]
    program: tuple[Step, ...]
    is_checkpointing: bool = False

    @property
    def name(self) -> str:
        return self.breaks.__name__


def _not_called_by(patch: Patch, function: str) -> None:
    """A function of ours does not say that a machine may change."""
    changed = Unchanged.changed

    def perhaps(self: Unchanged, name: str) -> None:
        if sys._getframe(1).f_code.co_name != function:
            changed(self, name)

    patch.setattr(Unchanged, "changed", perhaps)


def what_a_machine_accepts_changes_nothing(patch: Patch) -> None:
    """The mark at accepting is missing."""
    _not_called_by(patch, "_next")


def what_a_hook_does_changes_nothing(patch: Patch) -> None:
    """The mark before `snapshot_kept` is missing."""
    _not_called_by(patch, "_notice")


def what_is_declared_changes_nothing(patch: Patch) -> None:
    """The mark where inputs are declared is missing."""
    _not_called_by(patch, "declare")


def what_is_declared_wakes_nobody(patch: Patch) -> None:
    """The machine stays at rest."""
    wake = Copying.wake

    def perhaps(self: Copying, machine: Any) -> None:
        if sys._getframe(1).f_code.co_name != "declare":
            wake(self, machine)

    patch.setattr(Copying, "wake", perhaps)


def what_is_copied_at_a_wait_is_kept(patch: Patch) -> None:
    """It resumes, changes, and ends, with the same counts."""
    patch.setattr(Copier, "_rests", lambda self, machine: not machine.is_held)


def what_is_copied_of_a_held_machine_is_kept(patch: Patch) -> None:
    """Let go, it would still be blocked."""
    patch.setattr(Copier, "_rests", lambda self, machine: machine.name not in self.stage.suspended)
    _with_another_machine(patch, lambda machine, _: {"is_held": False})


def a_stopped_machine_is_as_it_was(patch: Patch) -> None:
    """Nothing of it runs, but it accepts no more."""
    _with_another_machine(patch, lambda machine, found: {"is_stopped": found is not None and found.status == "stopped"})


def _with_another_machine(patch: Patch, change: Callable[[Any, Any], dict[str, Any]]) -> None:
    copy_of = Unchanged.copy_of

    def asked(self: Unchanged, machine: Any) -> Any:
        seen = {"name": machine.name, "is_held": machine.is_held, "is_stopped": machine.is_stopped}
        return copy_of(self, SimpleNamespace(**seen | change(machine, self.copies.get(machine.name))))  # type: ignore[arg-type]

    patch.setattr(Unchanged, "copy_of", asked)


def what_is_redacted_now_was_written_before(patch: Patch) -> None:
    """No new name ends what was kept."""
    copy_of = Unchanged.copy_of

    def asked(self: Unchanged, machine: Any) -> Any:
        self.version = redaction.version
        return copy_of(self, machine)

    patch.setattr(Unchanged, "copy_of", asked)


def rows_are_not_written_anew_for_a_name(patch: Patch) -> None:
    """Nor what is shown of machines at rest."""
    patch.setattr(AtRest, "_is_more_redacted", lambda _: False)


def what_was_kept_outlives_its_generation(patch: Patch) -> None:
    """A host that goes back finds what was recorded of the machines that are gone."""
    copies: dict[str, Any] = {}
    made = Unchanged.__init__

    def make(self: Unchanged, **options: Any) -> None:
        made(self, **options)
        self.copies = copies

    patch.setattr(Unchanged, "__init__", make)


def objects_that_others_have_are_its_own(patch: Patch) -> None:
    """References to the object are not counted."""
    patch.setattr(alone, "_references", lambda _: alone._OF_A_BODY)


def parts_that_others_have_are_its_own(patch: Patch) -> None:
    """References to its parts are not counted."""
    patch.setattr(alone, "_ONCE", type("Any", (), {"__ne__": lambda *_: False})())


def weak_references_are_none(patch: Patch) -> None:
    """Nor those that Python does not count."""
    patch.setattr(alone, "getweakrefcount", lambda _: 1)
    patch.setattr(alone, "any", lambda _: False, raising=False)


def places_of_handles_are_never_learned(patch: Patch) -> None:
    """What is pickled of a handle changes without any action."""
    constant = alone._is_constant
    patch.setattr(alone, "_is_constant", lambda value, _: constant(value, False))


def places_of_promised_handles_are_never_learned(patch: Patch) -> None:
    """The same, where a class promises that its states stay as they are."""
    patch.setattr(unchanged, "_has_handles", lambda _: False)


def volatile_is_not_looked_at(patch: Patch) -> None:
    """A class says that its states change at any time."""
    patch.setattr(unchanged, "_is_volatile", lambda _: False)


def what_a_machine_says_it_waits_for_is_kept(patch: Patch) -> None:
    """It may say another thing in each snapshot."""
    _not_looked_at(patch, "waiting_for")


def what_a_machine_says_of_being_active_is_kept(patch: Patch) -> None:
    """The same."""
    _not_looked_at(patch, "is_active")


def what_a_machine_says_of_its_state_is_kept(patch: Patch) -> None:
    """The same, where the class promises nothing."""
    _not_looked_at(patch, "snapshot_state")


def what_waits_at_its_sender_is_not_looked_at(patch: Patch) -> None:
    """A machine with a timer is put to rest, and its rows show none."""
    quiet = Copying._is_quiet

    def is_quiet(self: Copying, machine: Any, copy: Any) -> bool:
        copy.waiting, waiting = {}, copy.waiting
        found = quiet(self, machine, copy)
        copy.waiting = waiting
        return found

    patch.setattr(Copying, "_is_quiet", is_quiet)


def whoever_is_of_a_bare_class_is_bare(patch: Patch) -> None:
    """Of machines whose states are written together, nothing else is looked at."""
    patch.setattr(
        Copier, "_bare_of", lambda self, machines: machines if unchanged.is_bare(type(machines[0].body)) else ()
    )


def what_is_written_together_has_redacted_names(patch: Patch) -> None:
    """Names that are redacted are not looked for."""
    patch.setattr(encoding_many, "redaction", SimpleNamespace(is_active=False))


def who_is_written_together_while_others_have_it_is_kept(patch: Patch) -> None:
    """References are not counted."""
    patch.setattr(Unchanged, "all_that_last", lambda self, machines: [True] * len(machines))


def hooks_of_their_own_are_not_looked_for_among_attributes(patch: Patch) -> None:
    """What is put into an object under the name of a hook is an attribute like any other."""
    patch.setattr(copier, "HOOKS", frozenset())


def _not_looked_at(patch: Patch, hook: str) -> None:
    has_own = unchanged._has_own
    patch.setattr(unchanged, "_is_volatile", unchanged._is_volatile.__wrapped__)
    patch.setattr(unchanged, "_has_own", lambda kind, name: name != hook and has_own(kind, name))


def who_has_woken_stays_in_what_is_saved(patch: Patch) -> None:
    """A checkpoint has it twice, once as it was."""
    without = RestingRows._without

    def all_saved(self: RestingRows, names: Any) -> Any:
        machines, ends, _ = without(self, names)
        return machines, ends, self.saved

    patch.setattr(RestingRows, "_without", all_saved)


def who_is_put_to_rest_later_is_not_saved(patch: Patch) -> None:
    """A checkpoint has only those that came to rest first."""
    plus = Rows.plus

    def not_saved(self: Rows, more: Any) -> Rows:
        return self if self.count and "class_key" in more.column_names else plus(self, more)

    patch.setattr(Rows, "plus", not_saved)


def who_is_at_rest_is_in_no_section(patch: Patch) -> None:
    """A checkpoint has only those that were copied for it."""
    patch.setattr(reporter, "section_of", lambda *given: checkpointing.section_of(*given[:6]))


def who_listens_rests(patch: Patch) -> None:
    """It is not told of snapshots that are kept."""
    patch.setattr(post, "listens", lambda _: False)


def who_is_saved_has_not_stopped(patch: Patch) -> None:
    """A machine that has stopped goes on where it is restored."""
    saved = resting.saved_machine
    patch.setattr(resting, "saved_machine", lambda copy: (*saved(copy)[:3], False))


def who_rests_anew_is_not_in_what_is_remembered(patch: Patch) -> None:
    """What was at rest beside nobody is remembered though more machines have come to rest."""
    take = RestingRows.take

    def remembers(self: RestingRows, rested: Any) -> None:
        before = self.whole
        take(self, rested)
        self.whole = before

    patch.setattr(RestingRows, "take", remembers)


def _another_lends(kind: type) -> tuple[Step, ...]:
    return ("spawn", 0, kind), ("spawn", 1, Resting), *TWICE, ("send", 1, "lend"), *ONCE


PLACED: tuple[Step, ...] = (("place", 0), ("place", 1), ("place", 2))
"""So that pickles of states last."""

AT_REST: tuple[Step, ...] = (*PLACED, ("spawn", 0, Resting), ("spawn", 2, Resting), *TWICE)

FLAT: tuple[Step, ...] = (("spawn", 0, Flat), ("spawn", 1, Flat))

MUTANTS = [
    Mutant(whoever_is_of_a_bare_class_is_bare, (*FLAT, ("wait", 0), *ONCE, ("go_on", 0))),
    Mutant(whoever_is_of_a_bare_class_is_bare, (*FLAT, ("hold", 0), *ONCE)),
    Mutant(whoever_is_of_a_bare_class_is_bare, (*FLAT, ("stop", 0), *ONCE)),
    Mutant(whoever_is_of_a_bare_class_is_bare, (*FLAT, ("declare", 0, 1), *ONCE)),
    Mutant(
        hooks_of_their_own_are_not_looked_for_among_attributes,
        (*FLAT, ("send", 0, "claim"), ("send", 1, "claim"), *ONCE),
    ),
    Mutant(what_is_written_together_has_redacted_names, (("redact", 1), *FLAT, *ONCE)),
    Mutant(
        who_is_written_together_while_others_have_it_is_kept,
        (*FLAT, ("send", 0, "register"), ("send", 1, "add", 1), *TWICE, ("poke", 1), *ONCE),
    ),
    Mutant(
        what_a_machine_accepts_changes_nothing,
        (("spawn", 0, Listener), ("place", 0), *TWICE, ("send", 0, "add", 1), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(
        what_a_hook_does_changes_nothing,
        (("spawn", 0, Listener), ("place", 0), *TWICE, ("tell",), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(
        what_is_declared_changes_nothing,
        (("spawn", 0, Wanting), ("spawn", 1, Resting), ("place", 0), *TWICE, ("declare", 0, 1), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(
        what_is_declared_wakes_nobody,
        (("spawn", 0, Joined), ("spawn", 1, Resting), *TWICE, ("declare", 0, 1), *ONCE),
    ),
    Mutant(
        what_is_copied_at_a_wait_is_kept,
        (("spawn", 0, Trusted), ("wait", 0), *TWICE, ("go_on", 0), *ONCE),
    ),
    Mutant(
        what_is_copied_of_a_held_machine_is_kept,
        (("spawn", 0, Trusted), ("hold", 0), *TWICE, ("release", 0), *ONCE),
    ),
    Mutant(
        a_stopped_machine_is_as_it_was,
        (("spawn", 0, Listener), ("place", 0), *TWICE, ("stop", 0), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(
        what_is_redacted_now_was_written_before,
        (("spawn", 0, Listener), ("place", 0), *TWICE, ("redact", 1), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(rows_are_not_written_anew_for_a_name, (("spawn", 0, Resting), *TWICE, ("redact", 1), *ONCE)),
    Mutant(
        what_was_kept_outlives_its_generation,
        (("spawn", 0, Listener), ("place", 0), *ONCE, ("send", 0, "add", 5), *TWICE, ("restore", 2), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(
        objects_that_others_have_are_its_own,
        (("spawn", 0, Resting), ("send", 0, "register"), *TWICE, ("poke", 1), *ONCE),
    ),
    Mutant(
        parts_that_others_have_are_its_own,
        (("spawn", 0, Resting), ("spawn", 1, Resting), ("send", 0, "lend"), *TWICE, ("send", 1, "use", 3), *ONCE),
    ),
    Mutant(
        weak_references_are_none,
        (("spawn", 0, Resting), ("send", 0, "register_weakly"), *TWICE, ("poke", 1), *ONCE),
    ),
    Mutant(
        places_of_handles_are_never_learned,
        (("spawn", 0, Resting), *TWICE, ("place", 0), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(
        places_of_promised_handles_are_never_learned,
        (("spawn", 0, Trusted), *TWICE, ("place", 0), *ONCE),
        is_checkpointing=True,
    ),
    Mutant(who_rests_anew_is_not_in_what_is_remembered, (*AT_REST, ("spawn", 4, Resting), *TWICE)),
    Mutant(volatile_is_not_looked_at, (("spawn", 0, Volatile), *TWICE, ("poke", 1), *ONCE)),
    Mutant(what_a_machine_says_it_waits_for_is_kept, _another_lends(Asked)),
    Mutant(what_a_machine_says_of_being_active_is_kept, _another_lends(Lively)),
    Mutant(what_a_machine_says_of_its_state_is_kept, _another_lends(Telling)),
    Mutant(what_waits_at_its_sender_is_not_looked_at, (("spawn", 0, Trusted), ("send", 0, "later"), *TWICE, *ONCE)),
    Mutant(who_has_woken_stays_in_what_is_saved, (*AT_REST, ("send", 0, "add", 1), *ONCE), is_checkpointing=True),
    Mutant(who_is_put_to_rest_later_is_not_saved, (*AT_REST, ("spawn", 4, Resting), *TWICE), is_checkpointing=True),
    Mutant(who_is_at_rest_is_in_no_section, AT_REST, is_checkpointing=True),
    Mutant(who_listens_rests, (*PLACED, ("spawn", 0, Listener), *TWICE, ("tell",), *ONCE), is_checkpointing=True),
    Mutant(who_is_saved_has_not_stopped, (*AT_REST, ("stop", 0), *TWICE, *ONCE), is_checkpointing=True),
]
