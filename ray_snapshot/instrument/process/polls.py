"""Callers that ask again and again and get equal answers, in one process.

Nothing is noted until snapshots have armed it: three in a row between which this process has sent calls, with the driver or one
and the same call running in it. A caller of which an answer is no repeat is left alone for a while, each time for longer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from enum import Enum
from types import GetSetDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot import redaction
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process.answer_uses import Asking, Use, asking
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.calls import parsed
from ray_snapshot.protocol.tasks import is_task

if TYPE_CHECKING:
    from ray_snapshot.protocol.calls import CallLedger


_LOOKS = 2
"""So many snapshots in a row have found more sent than the one before each."""


class Asked(NamedTuple):
    """What a caller asks an actor."""

    machine: str
    method: str
    call_site: str
    times: int
    """How many answers in a row were equal to the one before them."""
    answer: str
    """In a few characters; "" if it is longer."""


class Poll(NamedTuple):
    """A caller that has got nothing but equal answers for long."""

    call_id: str | None
    """None: the program itself, or a thread."""
    thread: str
    """Of a thread that the app has started, its name."""
    since: float
    asked: tuple[Asked, ...]
    use: str
    """What becomes of the answers (`answer_uses.Use`); of several the one that says least of an end."""
    sent: tuple[tuple[str, str], ...]
    """(machine, method) of calls of its beside, of which no answer is compared."""


class _Question:
    """A method of one actor, asked at one place."""

    def __init__(self, use: Use, answer: Any, text: str, now: float) -> None:
        self.use = use
        self.answer = answer
        self.text = text
        self.count = 0
        self.at = now


class _Caller:
    """A call that runs, the program, or a thread."""

    def __init__(self, now: float) -> None:
        self.since = now
        """When something of it was new last."""
        self.changes = 0
        """Answers that were no repeat, since it is looked at."""
        self.pauses = 0
        self.off_until = 0.0
        self.questions: dict[tuple[str, str, str], _Question] = {}
        self.sent: dict[tuple[str, str], None] = {}

    def begin_anew(self, now: float) -> None:
        self.since = now
        for one in self.questions.values():
            one.count = 0

    def leave_alone(self, now: float) -> None:
        """Too much of it is no repeat."""
        self.changes, self.pauses = 0, self.pauses + 1
        self.off_until = now + min(2.0**self.pauses, LIMITS.poll_pause_s)
        self.questions.clear()
        self.sent.clear()

    def asked(self) -> list[tuple[tuple[str, str, str], _Question]]:
        return [one for one in self.questions.items() if one[1].at > self.since]


class Polls:
    """Of one process. Methods but for `is_armed` are called under its lock."""

    def __init__(self) -> None:
        self.is_armed = False
        """Whether answers are compared now."""
        self.callers: dict[tuple[str | None, int], _Caller] = {}
        self.methods: dict[tuple[str, int], str] = {}
        """Of calls whose answers have not been read, the latest."""
        self.sent_count = -1
        self.risen = 0
        """How many snapshots in a row have found calls sent since the one before."""
        self.running: set[str] = set()

    def look(self, ledger: CallLedger, now: float) -> tuple[Poll, ...]:
        """A snapshot is recorded: arm or disarm; returns the polls."""
        sent = sum(output.sent_count for output in ledger.outputs.values())
        has_risen, self.sent_count = self.sent_count >= 0 and sent > self.sent_count, sent
        before, self.running = self.running, {*ledger.running}
        stays = ledger.acts_unasked or bool(before & self.running) or any(call is None for call, _ in self.callers)
        self.risen = self.risen + 1 if has_risen and stays else 0
        for key, one in [*self.callers.items()]:
            last = max([one.since, one.off_until, *(question.at for question in one.questions.values())])
            if (key[0] is not None and key[0] not in self.running) or now - last > LIMITS.poll_forgotten_s:
                del self.callers[key]
        self._arm(now)
        if not self.is_armed:
            self.methods.clear()
        polls = (_poll(key, one, now) for key, one in self.callers.items())
        return tuple(poll for poll in polls if poll is not None)

    def sent(self, machine: str, method: str, number: int, now: float) -> None:
        """This thread is about to call a method."""
        self.methods[machine, number] = method
        if len(self.methods) > LIMITS.poll_unread:
            del self.methods[next(iter(self.methods))]
        caller = self._caller(now)
        if caller is not None and (machine, method) not in caller.sent:
            caller.sent[machine, method] = None
            caller.begin_anew(now)
            if len(caller.sent) > LIMITS.poll_questions:
                self._leave_alone(caller, now)

    def read(self, calls: Sequence[str | None], answers: Sequence[Any], where: Asking | None, now: float) -> None:
        """This thread has read the answers to these calls (None: of something else)."""
        caller = self._caller(now)
        for call, answer in zip(calls, answers, strict=True):
            target, number = (parsed(call).target, parsed(call).number) if call is not None else ("", 0)
            method = self.methods.pop((target, number), None)
            if caller is None:
                continue
            if where is None or where.use is Use.DROPPED:
                caller.changes += not caller.questions
            elif method is None or is_task(target) or (plain := token(answer)) is None:
                caller.begin_anew(now)
                caller.changes += 1
            else:
                key = target, method, where.call_site
                question = caller.questions.get(key)
                if question is not None and question.answer == plain:
                    question.count, question.at = question.count + 1, now
                    continue
                text = "" if redaction.is_redacted(method) else _text(answer)
                caller.questions[key] = _Question(where.use, plain, text, now)
                caller.begin_anew(now)
                caller.changes += question is not None
        if caller is not None and (
            caller.changes > LIMITS.poll_changes or len(caller.questions) > LIMITS.poll_questions
        ):
            self._leave_alone(caller, now)

    def _leave_alone(self, caller: _Caller, now: float) -> None:
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
        if (found := self.callers.get(key)) is None:
            if len(self.callers) >= LIMITS.poll_callers:
                return None
            found = self.callers[key] = _Caller(now)
        return found if now >= found.off_until else None


def where_asked() -> Asking | None:
    """Where the program is that reads an answer."""
    return asking(sys._getframe(1))


_SAYS_LEAST = (Use.BOUNDED, Use.UNTIL, Use.ONCE, Use.UNKNOWN, Use.OPEN)


def _poll(key: tuple[str | None, int], caller: _Caller, now: float) -> Poll | None:
    asked = caller.asked()
    rounds = min((one.count for _, one in asked), default=0)
    if rounds < LIMITS.poll_rounds or now - caller.since < LIMITS.poll_s:
        return None
    period = (now - caller.since) / rounds
    if now - max(one.at for _, one in asked) > max(LIMITS.poll_rounds, 3 * period):
        return None  # it has stopped
    names = {thread.ident: thread.name for thread in threading.enumerate() if thread is not threading.main_thread()}
    questions = tuple(Asked(*name, one.count + 1, one.text) for name, one in asked)
    use = max((one.use for _, one in asked), key=_SAYS_LEAST.index)
    compared = {(machine, method) for (machine, method, _), _ in asked}
    beside = tuple(pair for pair in caller.sent if pair not in compared)
    thread = "" if key[0] is not None else names.get(key[1], "")
    return Poll(key[0], thread, caller.since, questions, use.value, beside)


_ATOMS = (type(None), bool, int, float, complex)


def token(value: Any) -> Any:
    """What is equal exactly for equal values; None for those that are large, or of which only their own code could tell.

    No code of the app's runs for it.
    """
    left = [LIMITS.poll_items]
    try:
        return _token(value, left)
    except _Unknown:
        return None


class _Unknown(Exception):
    pass


def _token(value: Any, left: list[int]) -> Any:
    kind = type(value)
    left[0] -= 1
    if left[0] < 0:
        raise _Unknown
    if kind is int and value.bit_length() > LIMITS.poll_bytes:
        raise _Unknown
    if kind in _ATOMS:
        return kind, value
    if kind in (str, bytes) and len(value) <= LIMITS.poll_bytes:
        left[0] -= len(value) // 10
        return kind, value
    if kind in (list, tuple) and len(value) <= left[0]:
        return kind, tuple([_token(item, left) for item in value])
    if kind is dict and len(value) <= left[0]:
        return kind, tuple([(_token(name, left), _token(item, left)) for name, item in value.items()])
    if kind in (set, frozenset) and len(value) <= left[0]:
        return kind, frozenset([_token(item, left) for item in value])
    if issubclass(kind, Enum):
        return kind, object.__getattribute__(value, "_name_")
    if issubclass(kind, tuple) and tuple.__len__(value) <= left[0]:
        return kind, tuple([_token(item, left) for item in tuple.__iter__(value)])
    if kind.__basicsize__ <= object.__basicsize__ + 16 and type(vars_ := _vars(value)) is dict:
        return kind, tuple([(name, _token(item, left)) for name, item in [*vars_.items()]])
    raise _Unknown


def _vars(value: Any) -> Any:
    """The attributes of an object that has nothing else."""
    found = next((vars(base)["__dict__"] for base in type(value).__mro__ if "__dict__" in vars(base)), None)
    return found.__get__(value) if type(found) is GetSetDescriptorType else None


def _text(value: Any) -> str:
    """Of a number, a short text, or something empty."""
    is_short = type(value) in _ATOMS or (type(value) in (str, list, tuple, dict, set) and not value)
    is_short |= type(value) is str and len(value) <= LIMITS.poll_text
    return repr(value)[: 2 * LIMITS.poll_text] if is_short else ""
