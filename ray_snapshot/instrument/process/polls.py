"""Callers that ask again and again and get equal answers, in one process.

They ask actors, or Ray: for an actor by a name that there is not, or for replies that do not come within a timeout. Nothing
is noted until snapshots have armed it: three between which this process has asked, with the driver or one and the same call
running in it. A caller of which an answer is no repeat is left alone for a while, each time for longer.

A wait with a timeout, outside of Ray, is a question that each snapshot notes which finds it (`wait`): who has sent nothing
since is in the same wait again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from ray_snapshot import redaction
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.answer_uses import Asking, Chain, Place, Use
from ray_snapshot.instrument.process.coroutines import has_timers, tasks_awaiting, tasks_before
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.calls import CallWait, parsed
from ray_snapshot.protocol.tasks import is_task

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.timed_waits import TimedWait
    from ray_snapshot.protocol.calls import CallLedger


_LOOKS = 2
"""So many snapshots have found more asked than the one before each."""


class PolledMethod(NamedTuple):
    """What a caller asks an actor, or Ray."""

    machine: str
    """Empty: Ray is asked."""
    method: str
    call_site: str
    times: int
    """How many answers in a row were equal to the one before them."""
    answer: str
    """In a few characters; "" if it is longer."""
    calls: tuple[str, ...] = ()
    """Of which it asks Ray for the replies."""


class Poll(NamedTuple):
    """A caller that has got nothing but equal answers for long."""

    call_id: str | None
    """None: the program itself, or a thread."""
    thread: str
    """Of a thread that the app has started, its name."""
    since: float
    asked: tuple[PolledMethod, ...]
    use: str
    """What becomes of the answers (`answer_uses.Use`); of several the one that says least of an end."""
    sent: tuple[tuple[str, str], ...]
    """(machine, method) of calls of its beside, of which no answer is compared."""
    is_young: bool = False
    """It has asked too often for an all-clear, and not for as long as makes a poll."""
    wait: CallWait | None = None
    """What it waits for, if it asks nobody, but waits with a timeout."""


@dataclass(slots=True)
class _Question:
    """A method of one actor, or a function of Ray's, asked at one place."""

    answer: Any
    text: str
    at: float
    calls: Sequence[str] = ()
    count: int = 0
    has_plain_arguments: bool = True


_Questions = dict[tuple[str, str, Place], _Question]
"""By machine, method and place."""


class _Caller:
    """A call that runs, the program, or a thread."""

    def __init__(self, now: float) -> None:
        self.since = now
        """When something of it was new last."""
        self.changes = 0
        """Answers that were no repeat, or of no use, since it is looked at."""
        self.pause = 1.0
        self.off_until = 0.0
        self.tasks: WeakSet[Any] = WeakSet()
        """Those of an event loop that have asked since, but for an async actor's."""
        self.questions: _Questions = {}
        self.sent: dict[tuple[str, str], float] = {}
        """By machine and method: when it was called last."""
        self.wait: TimedWait | None = None
        """What it waits for, if it is one that waits with a timeout."""

    def begin_anew(self, now: float) -> None:
        self.since = now
        self.tasks.clear()
        for one in self.questions.values():
            one.count = 0

    def leave_alone(self, now: float) -> None:
        """Too much of it is no repeat."""
        self.changes, self.pause = 0, min(2 * self.pause, LIMITS.poll_pause_s)
        self.off_until = now + self.pause
        self.questions.clear()
        self.sent.clear()

    @property
    def last(self) -> float:
        return max([self.since, self.off_until, *(one.at for one in self.questions.values())])

    def note(self, key: tuple[str, str, Place], answer: Any, text: str, now: float) -> _Question:
        """It has got an answer, which is comparable."""
        before = self.questions.get(key)
        if before is not None and before.answer == answer:
            before.count, before.at = before.count + 1, now
            return before
        self.questions[key] = _Question(answer, text, now)
        self.begin_anew(now)
        self.changes += before is not None
        return self.questions[key]

    @property
    def has_others(self) -> bool:
        """Whether the loop on which it asks has timers, or other tasks: none that waits for those that ask, nor the reverse."""
        asking = {*self.tasks}
        every = {one.get_loop(): asyncio.all_tasks(one.get_loop()) for one in asking}
        around = (
            {*tasks_before(one), *(by for by, _ in tasks_awaiting(one))} for tasks in every.values() for one in tasks
        )
        return any((found := loops.pending(loop)) is None or has_timers(found, asking) for loop in every) or any(
            map(asking.isdisjoint, around)
        )

    def asked(self, now: float) -> _Questions:
        """What it asks again and again, if it has got nothing but equal answers for long, and goes on."""
        repeated = {key: one for key, one in self.questions.items() if one.at > self.since}
        rounds = min((one.count for one in repeated.values()), default=0)
        few = LIMITS.young_poll_rounds - (self.wait is not None)  # three snapshots find a wait twice again
        if rounds < few or now - self.since < LIMITS.young_poll_s:
            return {}
        return repeated if now - self.last <= max(LIMITS.poll_stopped_s, 3 * (now - self.since) / rounds) else {}


class Polls:
    """Of one process. Methods are called under its lock."""

    def __init__(self) -> None:
        self.is_armed = False
        """Whether answers are compared now."""
        self.callers: dict[tuple[str | None, int], _Caller] = {}
        self.waiting: dict[tuple[str | None, int], _Caller] = {}
        """Those that wait with a timeout."""
        self.unread: dict[tuple[str, int], tuple[str, bool]] = {}
        """The latest calls whose answers have not been read: method, and whether all arguments are numbers, texts, ..."""
        self.missed = 0
        """How often Ray was asked for what is not there."""
        self.asked_count = -1
        self.risen = 0
        """How many snapshots have found more asked than the one before."""
        self.risen_at = 0.0
        self.running: set[str] = set()
        self.places: dict[Place, Asking] = {}
        """Where polls ask, as far as that was looked up: that reads files, and is done beside the lock."""

    def to_look_up(self, now: float) -> list[Place]:
        """Where polls ask, as far as that is not known."""
        every = {place for one in self.callers.values() for _, _, place in one.asked(now)}
        every |= {place for one in self.waiting.values() for _, _, place in one.questions}
        return [*(every - self.places.keys())]

    def _every(self) -> list[tuple[tuple[str | None, int], _Caller]]:
        return [*self.callers.items(), *self.waiting.items()]

    def wait(self, call_id: str | None, thread: int, waits: Sequence[TimedWait], sent: int, now: float) -> None:
        """A snapshot has found a call (None: the program; "": a thread of the app's own) in these: its own, or those of the
        tasks that it awaits. `sent`: how many calls this process has made."""
        key = call_id, thread
        if waits and not (key in self.callers and self.callers[key].questions):
            caller = self.waiting.setdefault(key, _Caller(now))
            caller.wait = waits[0]
            for one in waits:
                caller.note(("", one.what, one.place), (sent, one.calls), "", now).calls = one.calls

    def look(self, ledger: CallLedger, now: float, behind: Mapping[int, str | None]) -> tuple[Poll, ...]:
        """A snapshot is recorded: arm or disarm; returns the polls. `behind`: by thread of the app's own, the call that waits
        for what it does (None: the program)."""
        count = self.missed + sum(output.sent_count for output in ledger.outputs.values())
        has_risen, self.asked_count = 0 <= self.asked_count < count, count
        before, self.running = self.running, {*ledger.running}
        stays = ledger.acts_unasked or bool(before & self.running) or any(call is None for call, _ in self.callers)
        if not stays or now - self.risen_at > LIMITS.poll_forgotten_s:
            self.risen = 0
        if has_risen and stays:
            self.risen, self.risen_at = self.risen + 1, now
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        main, polls = threading.main_thread().ident, []
        for key, one in self._every():
            is_over = key[0] not in self.running if key[0] else key[1] not in names
            if is_over or now - one.last > LIMITS.poll_forgotten_s:
                del (self.callers if one.wait is None else self.waiting)[key]
                continue
            one.questions = {key: each for key, each in one.questions.items() if not self._is_dropped(key[2])}
            if key[0] != "" and (asked := one.asked(now)) and all(place in self.places for _, _, place in asked):
                call_id, is_own = key[0] or behind.get(key[1]), key[0] or key[1] == main or key[1] in behind
                polls.append(self._poll(call_id, "" if is_own else names[key[1]], one, asked, now))
        self._arm(now)
        if not self.is_armed:
            self.unread.clear()
        return tuple(polls)

    def _is_dropped(self, place: Place) -> bool:
        asking = self.places.get(place)
        return asking is not None and asking.use is Use.DROPPED

    def asking(self, now: float) -> list[tuple[str | None, int]]:
        """The calls (None: no call) and their threads that do nothing but ask, as far as is known."""
        return [key for key, one in self._every() if one.asked(now)]

    def idle_threads(self, now: float) -> set[int]:
        """Threads of the app's own that wait in vain with a timeout, and do nothing else."""
        own = ((key[1], one.asked(now)) for key, one in self.waiting.items() if key[0] == "")
        uses = {
            thread: {getattr(self.places.get(place), "use", None) for _, _, place in asked} for thread, asked in own
        }
        return {thread for thread, those in uses.items() if those and those <= {Use.OPEN, Use.WATCHED}}

    def _poll(self, call_id: str | None, thread: str, caller: _Caller, asked: _Questions, now: float) -> Poll:
        questions = tuple(
            PolledMethod(machine, method, self.places[place].call_site, one.count + 1, one.text, tuple(one.calls))
            for (machine, method, place), one in asked.items()
        )
        chosen = max if caller.wait is None else min  # whichever task of a call ends, it goes on
        use = chosen((self.places[place].use for _, _, place in asked), key=_SAYS_LEAST.index)
        if use is Use.UNTIL and not all(one.has_plain_arguments for one in asked.values()):
            use = Use.OPEN
        compared = {(machine, method) for machine, method, _ in asked}
        beside = tuple(pair for pair, at in caller.sent.items() if at > caller.since and pair not in compared)
        use = Use.ONCE if caller.has_others else use
        is_young = now - caller.since < LIMITS.poll_s or any(one.count < LIMITS.poll_rounds for one in asked.values())
        wait = None if caller.wait is None else caller.wait.noted(call_id, caller.since)
        return Poll(call_id, thread, caller.since, questions, use.value, beside, is_young, wait)

    def sent(self, machine: str, method: str, number: int, arguments: Iterable[Any], now: float) -> None:
        """This thread is about to call a method."""
        is_plain = all(type(one) in _ATOMS or type(one) in (str, bytes) for one in arguments)
        self.unread[machine, number] = method, is_plain
        if len(self.unread) > LIMITS.poll_unread:
            del self.unread[next(iter(self.unread))]
        if (caller := self._caller(now)) is None:
            return
        if (machine, method) not in caller.sent:
            caller.begin_anew(now)
        caller.sent[machine, method] = now
        if len(caller.sent) > LIMITS.poll_questions:
            caller.leave_alone(now)
            self._arm(now)

    def read(
        self, calls: Sequence[str | None], answers: Sequence[Any], chain: Chain, now: float, task: Any = None
    ) -> None:
        """This thread, or a task of it, has read the answers to these calls (None: of something else)."""
        if (caller := self._caller(now)) is None:
            return
        place = Place(chain)
        for call, answer in zip(calls, answers, strict=True):
            target, number = _target(call)
            method, has_plain_arguments = self.unread.pop((target, number), ("", False))
            if not chain or self._is_dropped(place):
                caller.changes += not caller.questions
            elif not method or is_task(target) or (plain := token(answer)) is None:
                caller.begin_anew(now)
                caller.changes += 1
            else:
                text = "" if redaction.is_redacted(method) else _text(answer)
                question = caller.note((target, method, place), plain, text, now)
                question.has_plain_arguments &= has_plain_arguments
        self._noted(caller, now, task)

    def asked_ray(
        self, function: str, answer: str, calls: Sequence[str | None], chain: Chain, now: float, task: Any = None
    ) -> None:
        """This thread has asked Ray by a function of its, or by `await`, for the replies of calls (none: for a name), and has
        got `answer` in their place; "": it has got them.

        These are nothing new if it goes on to read equal answers, again and again.
        """
        if (caller := self._caller(now)) is None:
            return
        place, asked = Place(chain, function.partition("(")[0]), {key[:2] for key in caller.questions}
        key, targets = ("", function, place), [_target(one) for one in calls]
        is_asked = all((one[0], self.unread.get(one, ("", False))[0]) in asked for one in targets)
        if not chain or self._is_dropped(place):
            caller.changes += not caller.questions
        elif answer and None not in calls:
            caller.note(key, [target for target, _ in targets], answer, now).calls = [*filter(None, calls)]
        elif answer or key in caller.questions or not is_asked:
            caller.begin_anew(now)
            caller.changes += 1
        self._noted(caller, now, task)

    def _noted(self, caller: _Caller, now: float, task: Any) -> None:
        if task is not None:
            caller.tasks.add(task)
        if caller.changes > LIMITS.poll_changes or len(caller.questions) > LIMITS.poll_questions:
            caller.leave_alone(now)
            self._arm(now)

    def _arm(self, now: float) -> None:
        """Answers are compared as long as there may be a caller of whom that is of use."""
        if self.callers:
            self.is_armed = any(now >= one.off_until for one in self.callers.values())
        else:
            self.is_armed = self.risen >= _LOOKS

    def _caller(self, now: float) -> _Caller | None:
        """Of this thread; None while it is left alone."""
        key = CURRENT.get(), threading.get_ident()
        if (caller := self.callers.get(key)) is None:
            if len(self.callers) >= LIMITS.poll_callers:
                return None
            caller = self.callers[key] = _Caller(now)
        return caller if now >= caller.off_until else None


_SAYS_LEAST = (Use.BOUNDED, Use.RETURNED, Use.PART, Use.UNTIL, Use.ONCE, Use.UNKNOWN, Use.WATCHED, Use.OPEN)


def _target(call: str | None) -> tuple[str, int]:
    """The machine of a call, and its number there."""
    return ("", 0) if call is None else (parsed(call).target, parsed(call).number)


_ATOMS = (type(None), bool, int, float, complex)


def token(value: Any) -> Any:
    """What is equal exactly for equal values; None for those that are large, or of which only their own code could tell.

    No code of the app's runs for it.
    """
    try:
        return _token(value, [LIMITS.poll_items])
    except Exception:  # also of what another thread changes meanwhile
        return None


def _token(value: Any, left: list[int]) -> Any:
    kind = type(value)
    left[0] -= 1
    if kind in (str, bytes):
        left[0] -= len(value) // 10
    elif kind is int:
        left[0] -= value.bit_length() // 100
    elif kind in (list, tuple, set, frozenset, dict):
        left[0] -= len(value)
    if left[0] < 0:
        raise ValueError
    if kind in _ATOMS or kind in (str, bytes):
        return kind, value
    if issubclass(kind, Enum):
        return kind, _token(object.__getattribute__(value, "_value_"), left)
    if kind in (set, frozenset):
        return kind, frozenset([_token(item, left) for item in value])
    if issubclass(kind, tuple):
        return kind, tuple([_token(item, left) for item in tuple.__iter__(value)])
    if kind in (list, dict):
        return kind, tuple([_token(item, left) for item in (value if kind is list else value.items())])
    raise TypeError


def _text(value: Any) -> str:
    """Of what says nothing of the app: None, a truth, zero, something empty."""
    is_empty = type(value) in (int, float, str, list, tuple, dict, set) and not value
    return repr(value) if value is None or type(value) is bool or is_empty else ""
