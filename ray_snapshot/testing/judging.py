"""Predicates on states: detectors, and functions of the machines. Each is asked once for what it can tell apart.

A detector is asked about a state as a snapshot (`rows`). `Termination` and `Deadlock` see neither what a machine holds nor
what a message says: they are asked once for all states that look the same to them. Of `TokenConservation` the amounts are
added up here, cell by cell, and only a sum that is not right is given to the detector. Any other detector is asked about
every state. Never imports Ray.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from ray_snapshot.detectors import Deadlock, Termination, TokenConservation
from ray_snapshot.detectors.json_path import compile_path
from ray_snapshot.detectors.ledger import amount_of
from ray_snapshot.errors import DetectorError, SettingError
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.testing.acts import Ref
from ray_snapshot.testing.records import CHANNEL, MACHINE, TIMERS, Gone, Inside, Rest, State, Unborn
from ray_snapshot.testing.rows import Shown
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.table import ByCell
from ray_snapshot.verdicts import Detector, Verdict, check_detector, compares, evaluate, place_of

F = TypeVar("F", bound=Callable[..., Any])


def over(*names: str) -> Callable[[F], F]:
    """Say which machines a predicate reads: `testing.over("a", "b")(f)`, or as a decorator.

    The new function is then asked only once for all states in which these machines are the same. One that reads another
    machine is told so with `DetectorError`; raises `SettingError` for what is no function.
    """
    if not names or not all(isinstance(name, str) for name in names):
        raise SettingError(f"over{names!r}: the names of the machines that a predicate reads")

    def decorate(function: F) -> F:
        if not callable(function) or hasattr(function, "evaluate"):
            raise SettingError(f"over(...)({function!r}): it takes a function of the machine objects")

        @functools.wraps(function)
        def reading(machines: Mapping[str, Any]) -> Any:
            return function(machines)

        reading.__name__ = getattr(function, "__name__", type(function).__name__)
        reading.__reads__ = tuple(sorted(names))  # type: ignore[attr-defined]
        return reading  # type: ignore[return-value]

    return decorate


_BLOCKED, _MOVING, _MAIL, _UNSURE = "blocked", "moving", "mail", "unsure"
"""What a cell holds, as far as `ByMoving` looks."""


class Judge(Protocol):
    """A predicate on states."""

    name: str

    def holds(self, state: State) -> bool | None:
        """Its answer; None: it cannot be told."""

    def sentence(self, state: State) -> str:
        """The answer in words."""


def judge_of(item: Any, space: Space, shown: Shown) -> Judge:
    """The judge of an item of `always`, `never` or `eventually`; raises `DetectorError` for what is none."""
    if callable(item) and not hasattr(item, "evaluate"):
        return ByFunction(item, space, shown)
    detector = check_detector(item)
    if type(detector) is TokenConservation and not isinstance(detector.total, float):
        return ByAmounts(detector, space, shown)
    if type(detector) is Deadlock:
        return ByMoving(detector, space, shown)
    is_blind = type(detector) is Termination and detector.machines is None
    return ByQuiet(detector, space, shown) if is_blind else ByDetector(detector, space, shown)


class _Read(Mapping[str, Any]):
    """The machines that a predicate has said it reads."""

    def __init__(self, machines: dict[str, Any], allowed: tuple[str, ...], name: str) -> None:
        self.machines, self.allowed, self.name = machines, allowed, name

    def __getitem__(self, name: str) -> Any:
        if name not in self.allowed:
            raise DetectorError(
                f"predicate {self.name!r} reads machine {name!r}, and has said that it reads {', '.join(self.allowed)} alone:"
                f" name it in testing.over(...), or leave testing.over out",
                detector=self.name,
            )
        return self.machines[name]

    def __iter__(self) -> Iterator[str]:
        raise DetectorError(
            f"predicate {self.name!r} goes through all machines, and has said that it reads {', '.join(self.allowed)} alone:"
            " leave testing.over out",
            detector=self.name,
        )

    def __len__(self) -> int:
        return len([*self.__iter__()])

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None


class ByFunction:
    """A function of the machine objects by name."""

    def __init__(self, function: Callable[[Mapping[str, Any]], Any], space: Space, shown: Shown) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.reads: tuple[str, ...] | None = getattr(function, "__reads__", None)
        self.space, self.shown = space, shown
        self._cells: list[tuple[str, int]] = []
        self._known = 0
        self._answers: dict[Any, bool | None] = {}

    def machines(self, state: State) -> dict[str, Any]:
        """The machines that are there, by name."""
        if self._known != len(self.space.cells):
            self._known = len(self.space.cells)
            self._cells = sorted(
                (name, cell)
                for cell, (kind, name) in enumerate(self.space.cells)
                if kind == MACHINE and name != "driver"
            )
        size, objects, found = len(state), self.shown.objects, {}
        for name, cell in self._cells:
            value = state[cell] if cell < size else 0
            if value:
                body = objects[cell, value]
                if body is not None:
                    found[name] = body
        return found

    def holds(self, state: State) -> bool | None:
        """Ask the function, or remember."""
        if self.reads is None:
            return self._ask(self.machines(state))
        size = len(state)
        cells = [self.space.cell(MACHINE, name) for name in self.reads]
        key = tuple(state[cell] if cell < size else 0 for cell in cells)
        if key not in self._answers:
            self._answers[key] = self._ask(_Read(self.machines(state), self.reads, self.name))
        return self._answers[key]

    def _ask(self, machines: Mapping[str, Any]) -> bool | None:
        try:
            found = self.function(machines)
        except DetectorError:
            raise
        except Exception as error:
            place = place_of(error)
            raise DetectorError(
                f"predicate {self.name!r} raised {type(error).__name__}: {error}{f' at {place}' if place else ''}",
                detector=self.name,
            ) from error
        if found is True or found is False or found is None:
            return found
        if type(found).__name__ in ("bool", "bool_"):  # numpy's
            return bool(found)
        raise DetectorError(
            f"predicate {self.name!r} returned {type(found).__name__} {str(found)[:80]!r}: return True or False",
            detector=self.name,
        )

    def sentence(self, state: State) -> str:
        """What it said."""
        words = {True: "holds", False: "does not hold", None: "cannot be told"}
        return f"{self.name} {words[self.holds(state)]}."


class ByDetector:
    """A detector that is asked about every state."""

    has_states = True

    def __init__(self, detector: Detector, space: Space, shown: Shown) -> None:
        self.detector = detector
        self.name = detector.name
        self.space, self.shown = space, shown
        self.compares = compares(detector)
        self.first: Snapshot | None = None
        """The first state that was judged: what later ones are compared with."""
        self._answers: dict[Any, bool | None] = {}

    def verdict(self, state: State, *, has_states: bool = True) -> Verdict:
        """The whole verdict."""
        snapshot = self.shown.snapshot(state, has_states=has_states)
        if self.first is None and self.compares:
            self.first = snapshot
        found = evaluate(self.detector, snapshot, earlier=self.first, evaluator="testing")
        if (
            "error" in found.evidence
            and found.holds is None
            and found.sentence.startswith(f"Detector {self.name} failed")
        ):
            raise DetectorError(found.sentence, detector=self.name)
        return found

    def holds(self, state: State) -> bool | None:
        """Ask it, or remember."""
        key = self.look(state)
        if key not in self._answers:
            self._answers[key] = self.verdict(state, has_states=self.has_states).holds
        return self._answers[key]

    def look(self, state: State) -> Any:
        """What it can tell states apart by."""
        return state

    def sentence(self, state: State) -> str:
        """The verdict in words."""
        return self.verdict(state).sentence


class ByLooks(ByDetector):
    """A detector that sees who waits for whom and what is in flight, and not what it says."""

    has_states = False

    def __init__(self, detector: Detector, space: Space, shown: Shown) -> None:
        super().__init__(detector, space, shown)
        self._looks = ByCell(lambda cell, value: self._ids.setdefault(self._seen(cell, value), len(self._ids)))
        self._ids: dict[Any, int] = {}

    def look(self, state: State) -> Any:
        """Of each cell a number for what can be seen of it."""
        looks = self._looks
        return tuple([looks[item] for item in enumerate(state)])

    def _seen(self, cell: int, value: int) -> Any:
        if not value:
            return None
        kind, _ = self.space.cells[cell]
        record = self.space.values[value]
        if kind == MACHINE:
            if type(record) is Inside:
                calls = tuple(getattr(mail, "call", None) for _, _, mail in record.taken)
                return record.act.machine, record.act.method, record.wait, record.wait.timeout is None, calls
            if type(record) is Rest and record.kind:
                return record.kind, record.is_stopped, self.shown.said(cell, value)
            return type(record), record.kind
        if kind in (CHANNEL, TIMERS):
            mails = [self.space.values[mail] for mail in self.space.table.mails(cell, value)]
            has_joins = any(self.space.stage.joins) or bool(self.space.stage.sources)
            calls = tuple(mail.call for mail in mails if mail.call is not None)
            return kind, calls, tuple(mail.method for mail in mails) if has_joins else None
        return kind


class ByQuiet(ByLooks):
    """`Termination`: asked only where no machine is in an action, and no message on its way to one that can accept it."""

    def holds(self, state: State) -> bool | None:
        """False where something is under way."""
        size, space = len(state), self.space
        for cell, value in enumerate(state):
            kind = space.cells[cell][0]
            if not value or not cell:
                continue
            if kind == MACHINE:
                if type(space.values[value]) in (Unborn, Inside):
                    return False
            elif kind in (CHANNEL, TIMERS):
                target = space.values[state[space.targets[cell]]] if space.targets[cell] < size else None
                if type(target) is Rest and not target.is_stopped:
                    return False
        return super().holds(state)


class ByMoving(ByLooks):
    """`Deadlock`: asked only where not every blocked machine can move by what is on its way.

    The rule here is weaker than the detector's (what it lets move, that lets move, too), and tested against it.
    """

    def __init__(self, detector: Detector, space: Space, shown: Shown) -> None:
        super().__init__(detector, space, shown)
        self._sorts = ByCell(self._sort)

    def holds(self, state: State) -> bool | None:
        """False where every blocked machine can move."""
        return False if self._all_can_move(state) else super().holds(state)

    def _all_can_move(self, state: State) -> bool:
        space = self.space
        if any(space.stage.joins) or space.stage.sources:
            return False
        seen = self._sorts
        sorts = [seen[item] for item in enumerate(state)]
        if _UNSURE in sorts:
            return False
        if _BLOCKED not in sorts:
            return True
        blocked: dict[str, tuple[int, list[str]]] = {}
        moving = set()
        for cell, sort in enumerate(sorts):
            name = space.cells[cell][1]
            if sort == _BLOCKED:
                wait = space.values[state[cell]].wait
                blocked[name] = wait.k, [self._owes(state, ref) for ref in wait.refs]
            elif sort == _MOVING:
                moving.add(name)
            elif sort == _MAIL:
                record = space.at(state, space.targets[cell])
                if type(record) is Rest and not record.is_stopped:
                    moving.add(name[1])
        return _freed(blocked, moving).issuperset(blocked)

    def _sort(self, cell: int, value: int) -> str:
        kind = self.space.cells[cell][0]
        record = self.space.values[value]
        if not value or kind not in (MACHINE, CHANNEL, TIMERS) or type(record) is Gone:
            return ""
        if kind != MACHINE:
            return _MAIL
        if type(record) is Inside:
            return _BLOCKED if record.wait.timeout is None else _MOVING
        if type(record) is not Rest:
            return _MOVING
        if record.is_stopped:
            return ""
        said = self.shown.said(cell, value) if record.kind else None
        if said is not None and said.wait is not None:
            return _UNSURE
        return "" if said is None or said.status == "passive" else _MOVING

    def _owes(self, state: State, ref: Ref) -> str:
        """Who owes the result of a call; "" where it is there."""
        target, is_there = self.shown.answerer(state, ref)
        return "" if is_there else str(target)


def _freed(blocked: Mapping[str, tuple[int, list[str]]], moving: set[str]) -> set[str]:
    """`moving`, with all that are freed by it added."""
    while True:
        waiting = [(name, *wait) for name, wait in blocked.items() if name not in moving]
        freed = [name for name, k, owers in waiting if sum(not on or on in moving for on in owers) >= k]
        if not freed:
            return moving
        moving.update(freed)


class ByAmounts(ByDetector):
    """`TokenConservation` with a whole total: exact sums of whole amounts are added up here, all else is asked of it."""

    def __init__(self, detector: TokenConservation, space: Space, shown: Shown) -> None:
        super().__init__(detector, space, shown)
        self.total = detector.total
        self.paths = (
            {name: compile_path(path) for name, path in detector.state.items()}
            if isinstance(detector.state, Mapping)
            else compile_path(detector.state)
        )
        self.messages = {method: compile_path(path) for method, path in detector.messages.items()}
        self._amounts = ByCell(self._amount)

    def holds(self, state: State) -> bool | None:
        """Add up."""
        total, amounts = 0, self._amounts
        for item in enumerate(state):
            if item[1]:
                amount = amounts[item]
                if amount is None:
                    return super().holds(state)
                total += amount
        if self.total is None and self.first is None:
            super().holds(state)
            self.total = total if self.first is not None else None
        return True if total and total == self.total else super().holds(state)

    def _amount(self, cell: int, value: int) -> int | None:
        """What a cell holds; None if it is no whole number, or may still become more."""
        kind, name = self.space.cells[cell]
        record = self.space.values[value]
        if kind == MACHINE:
            if name == "driver":
                return 0
            is_being_made = type(record) is Unborn or (type(record) is Inside and record.act.method == "__init__")
            if is_being_made or type(record) is Gone:
                return None
            class_name = self.space.stage.kinds[record.kind].__name__
            path = self.paths.get(class_name) if isinstance(self.paths, dict) else self.paths
            return 0 if path is None else _whole(path.find(self.shown.state(cell, value)), is_zero=True)
        if kind not in (CHANNEL, TIMERS):
            return 0
        total = 0
        for mail in self.space.table.mails(cell, value):
            message = self.space.values[mail]
            if message.method in self.messages:
                found = self.messages[message.method].find(self.shown.arguments(message.payload))
                amount = _whole(found, is_zero=False)
                if amount is None:
                    return None
                total += amount
        return total


def _whole(value: Any, *, is_zero: bool) -> int | None:
    found = amount_of(value, missing_is_zero=is_zero)
    return found if type(found) is int else None
