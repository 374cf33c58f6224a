"""Callers that ask again and again and get equal answers, in one process.

Nothing is noted until snapshots have armed it: three in a row between which this process has sent calls, with the driver or one
and the same call running in it. A caller of which an answer is no repeat is left alone for a while, each time for longer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot import redaction
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process.answer_uses import Asking, Chain, Use
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.calls import parsed
from ray_snapshot.protocol.tasks import is_task

if TYPE_CHECKING:
    from ray_snapshot.protocol.calls import CallLedger


_LOOKS = 2
"""So many snapshots in a row have found more sent than the one before each."""


class PolledMethod(NamedTuple):
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
    asked: tuple[PolledMethod, ...]
    use: str
    """What becomes of the answers (`answer_uses.Use`); of several the one that says least of an end."""
    sent: tuple[tuple[str, str], ...]
    """(machine, method) of calls of its beside, of which no answer is compared."""


class _Question:
    """A method of one actor, asked at one place."""

    def __init__(self, answer: Any, text: str, now: float) -> None:
        self.answer = answer
        self.text = text
        self.count = 0
        self.at = now
        self.has_plain_arguments = True


class _Caller:
    """A call that runs, the program, or a thread."""

    def __init__(self, now: float) -> None:
        self.since = now
        """When something of it was new last."""
        self.changes = 0
        """Answers that were no repeat, or of no use, since it is looked at."""
        self.pause = 1.0
        self.off_until = 0.0
        self.has_tasks = False
        """Whether other tasks run on the loop on which it asks, of which no call tells."""
        self.questions: dict[tuple[str, str, Chain], _Question] = {}
        self.sent: dict[tuple[str, str], float] = {}
        """By machine and method: when it was called last."""

    def begin_anew(self, now: float) -> None:
        self.since = now
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

    def asked(self, now: float) -> dict[tuple[str, str, Chain], _Question]:
        """What it asks again and again, if it has got nothing but equal answers for long, and goes on."""
        repeated = {key: one for key, one in self.questions.items() if one.at > self.since}
        rounds = min((one.count for one in repeated.values()), default=0)
        if rounds < LIMITS.poll_rounds or now - self.since < LIMITS.poll_s:
            return {}
        return repeated if now - self.last <= max(LIMITS.poll_stopped_s, 3 * (now - self.since) / rounds) else {}


class Polls:
    """Of one process. Methods are called under its lock."""

    def __init__(self) -> None:
        self.is_armed = False
        """Whether answers are compared now."""
        self.callers: dict[tuple[str | None, int], _Caller] = {}
        self.unread: dict[tuple[str, int], tuple[str, bool]] = {}
        """The latest calls whose answers have not been read: method, and whether all arguments are numbers, texts, ..."""
        self.sent_count = -1
        self.risen = 0
        """How many snapshots in a row have found calls sent since the one before."""
        self.running: set[str] = set()
        self.places: dict[Chain, Asking] = {}
        """Where polls ask, as far as that was looked up: that reads files, and is done beside the lock."""

    def to_look_up(self, now: float) -> list[Chain]:
        """Where polls ask, as far as that is not known."""
        every = {chain for one in self.callers.values() for _, _, chain in one.asked(now)}
        return [*(every - self.places.keys())]

    def look(self, ledger: CallLedger, now: float) -> tuple[Poll, ...]:
        """A snapshot is recorded: arm or disarm; returns the polls."""
        sent = sum(output.sent_count for output in ledger.outputs.values())
        has_risen, self.sent_count = self.sent_count >= 0 and sent > self.sent_count, sent
        before, self.running = self.running, {*ledger.running}
        stays = ledger.acts_unasked or bool(before & self.running) or any(call is None for call, _ in self.callers)
        self.risen = self.risen + 1 if has_risen and stays else 0
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        main, polls = threading.main_thread().ident, []
        for key, one in [*self.callers.items()]:
            is_over = key[1] not in names if key[0] is None else key[0] not in self.running
            if is_over or now - one.last > LIMITS.poll_forgotten_s:
                del self.callers[key]
                continue
            for question in [*one.questions]:
                if self._is_dropped(question[2]):
                    del one.questions[question]
            if (asked := one.asked(now)) and all(chain in self.places for _, _, chain in asked):
                polls.append(self._poll(key[0], "" if key[0] or key[1] == main else names[key[1]], one, asked))
        self._arm(now)
        if not self.is_armed:
            self.unread.clear()
        return tuple(polls)

    def _is_dropped(self, chain: Chain) -> bool:
        place = self.places.get(chain)
        return place is not None and place.use is Use.DROPPED

    def _poll(
        self, call_id: str | None, thread: str, caller: _Caller, asked: Mapping[tuple[str, str, Chain], _Question]
    ) -> Poll:
        questions = tuple(
            PolledMethod(machine, method, self.places[chain].call_site, one.count + 1, one.text)
            for (machine, method, chain), one in asked.items()
        )
        use = max((self.places[chain].use for _, _, chain in asked), key=_SAYS_LEAST.index)
        if use is Use.UNTIL and not all(one.has_plain_arguments for one in asked.values()):
            use = Use.OPEN
        compared = {(machine, method) for machine, method, _ in asked}
        beside = tuple(pair for pair, at in caller.sent.items() if at > caller.since and pair not in compared)
        return Poll(call_id, thread, caller.since, questions, (Use.ONCE if caller.has_tasks else use).value, beside)

    def sent(self, machine: str, method: str, number: int, arguments: Iterable[Any], now: float) -> None:
        """This thread is about to call a method."""
        self.unread[machine, number] = (
            method,
            all(type(one) in _ATOMS or type(one) in (str, bytes) for one in arguments),
        )
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
        self, calls: Sequence[str | None], answers: Sequence[Any], chain: Chain, now: float, *, has_tasks: bool = False
    ) -> None:
        """This thread has read the answers to these calls (None: of something else)."""
        if (caller := self._caller(now)) is None:
            return
        caller.has_tasks = has_tasks
        for call, answer in zip(calls, answers, strict=True):
            target, number = (parsed(call).target, parsed(call).number) if call is not None else ("", 0)
            method, has_plain_arguments = self.unread.pop((target, number), ("", False))
            if not chain or self._is_dropped(chain):
                caller.changes += not caller.questions
            elif not method or is_task(target) or (plain := token(answer)) is None:
                caller.begin_anew(now)
                caller.changes += 1
            else:
                before = caller.questions.get((target, method, chain))
                if before is None or before.answer != plain:
                    text = "" if redaction.is_redacted(method) else _text(answer)
                    caller.questions[target, method, chain] = _Question(plain, text, now)
                    caller.begin_anew(now)
                    caller.changes += before is not None
                    before = caller.questions[target, method, chain]
                else:
                    before.count, before.at = before.count + 1, now
                before.has_plain_arguments &= has_plain_arguments
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


_SAYS_LEAST = (Use.BOUNDED, Use.RETURNED, Use.PART, Use.UNTIL, Use.ONCE, Use.UNKNOWN, Use.OPEN, Use.WAITS)


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
