"""Mailboxes: the receiving end of channels, one FIFO queue each, and the fair choice among them.

A channel is (source machine, target machine, kind); it numbers its messages from 1. An action accepts the head of one
mailbox, or, for a join, one message per port: heads of different mailboxes (EWD864a: at most one message per input
buffer) or, where one sender serves several ports, several from the front of one (nothing in the theorem needs "at most").
The choice is round robin among the mailboxes that have something, so that no busy channel starves another: this is
EWD864a's friendly daemon.

A message is a plain tuple, not a class: a host moves hundreds of thousands of them a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.joins import cover, run_of

Message = tuple[int, int, str, Any, float, Any]
"""(channel index on its link, number on its channel, method, arguments, time sent, colour)."""

NUMBER, METHOD, ARGS, SENT_AT, COLOUR = 1, 2, 3, 4, 5
"""Where things are in a `Message`."""

MAIL, CALL, TIMER = "mail", "call", "timer"

End = str | tuple[str, str]
"""What a machine knows a channel by: the name of the machine at its other end; beside it the kind, where that is not `MAIL`."""


def end_of(machine: str, kind: str) -> End:
    """The other end of a channel of that kind: most are mail, and a name alone takes no room of its own."""
    return machine if kind == MAIL else (machine, kind)


def name_of(end: End) -> str:
    """The machine there."""
    return end[0] if isinstance(end, tuple) else end


def kind_of(end: End) -> str:
    """What kind of channel leads there."""
    return end[1] if isinstance(end, tuple) else MAIL


def names_and_kinds(ends: Sequence[End]) -> tuple[Sequence[str], str | list[str]]:
    """The machines at some other ends, and of what kind the channels are: one kind, where they are all mail."""
    if tuple not in {*map(type, ends)}:
        return ends, MAIL  # type: ignore[return-value]
    return [*map(name_of, ends)], [*map(kind_of, ends)]


NOTHING: Any = ()
"""In place of a list or a queue that nothing has been put into: most machines of many wait for nothing. Whoever puts something
in makes one."""

Queue = Sequence[Any]
"""What waits, in order: `NOTHING`, one thing alone in a tuple, or a deque. An empty deque takes 768 bytes, and where a million
messages wait, most wait alone on their channel: what a mailbox keeps of such a one is no more than the message."""

KEPT_QUEUES = 2
"""A machine with no more senders than that has deques for theirs, from the second message on, and keeps them when they are
empty: to make one costs 2% of a message."""

LONG = 32
"""What is ready is in a list, which for a few takes a quarter of the room of a deque, until it is as long as that."""


def added(queue: Queue, item: Any) -> Queue:
    """The queue with one more at its end."""
    if isinstance(queue, deque):
        queue.append(item)
        return queue
    return deque((queue[0], item)) if queue else (item,)


def without_first(queue: Queue) -> Queue:
    """The queue without what is at its front."""
    if isinstance(queue, deque):
        queue.popleft()
        return queue
    return ()


class _NoEntries(dict[Any, Any]):
    """An empty dictionary that stays so; there is one, also behind a copy."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(f"{key!r} was put into the one empty dictionary that all share: make one first")

    def __reduce__(self) -> str:
        return "NO_ENTRIES"


NO_ENTRIES: Any = _NoEntries()
"""The same, in place of a dictionary."""

_NO_PORTS: frozenset[str] = frozenset()

_BEHIND = attrgetter("behind")


class Mailbox:
    """What has arrived on one channel and was not accepted yet."""

    __slots__ = ("accepted", "acknowledged", "arrived", "behind", "end", "index", "kept", "owner")
    # Eight take 96 bytes; there may be millions.

    def __init__(self, source: str, kind: str, owner: Inbox, link: str | None = None, index: int = 0) -> None:
        self.end = end_of(source, kind)
        self.owner = owner
        self.behind: Any = link
        """The host that the channel comes from; or its sending end, where that is on this host and known."""
        self.index = index
        self.kept: Any = NOTHING
        """What waits: `NOTHING`, a deque, or the one message itself."""
        self.arrived = 0
        self.accepted = 0
        self.acknowledged = 0
        """How many acceptances the sender has been told of."""

    @property
    def source(self) -> str:
        """The machine that sends."""
        return name_of(self.end)

    @property
    def kind(self) -> str:
        """What is sent."""
        return kind_of(self.end)

    @property
    def link(self) -> str | None:
        """The host that the channel comes from; None if its source lives on this host."""
        return self.behind if type(self.behind) is str else None

    @property
    def queue(self) -> Queue:
        """What waits, in order."""
        kept = self.kept
        return kept if type(kept) is deque or kept is NOTHING else (kept,)

    @queue.setter
    def queue(self, queue: Queue) -> None:
        if type(queue) is deque or not queue:
            self.kept = queue
        else:
            (self.kept,) = queue


def hosts_behind(boxes: Iterable[Mailbox]) -> list[str | None]:
    """Of each its `link`."""
    return [behind if type(behind) is str else None for behind in map(_BEHIND, boxes)]


class Inbox:
    """All mailboxes of one machine.

    `joins` are the machine's patterns: tuples of ports (method names) that one action takes together. A method that is
    a port of a join is never an action by itself.
    """

    __slots__ = ("joins", "machine", "mailboxes", "parked", "ports", "ready")

    def __init__(self, joins: Sequence[tuple[str, ...]] = (), machine: Any = None) -> None:
        self.machine = machine
        self.mailboxes: dict[End, Mailbox] = NO_ENTRIES
        self.ready: list[Mailbox] | deque[Mailbox] = NOTHING
        self.joins: list[tuple[str, ...]] = NOTHING
        self.ports: Set[str] = _NO_PORTS
        self.parked: dict[str, deque[Mailbox]] = NO_ENTRIES
        """Mailboxes whose head waits for the rest of its join, by port."""
        if joins:
            self.set_joins(joins)

    def set_joins(self, joins: Sequence[tuple[str, ...]]) -> None:
        """Declare the patterns; what is already in the mailboxes is chosen by them from now on."""
        for waiting in self.parked.values():
            self.ready = deque((*self.ready, *waiting))
        if not joins:
            self.joins, self.ports, self.parked = NOTHING, _NO_PORTS, NO_ENTRIES
            return
        self.joins = [tuple(ports) for ports in joins]
        self.ports = {port for ports in self.joins for port in ports}
        self.parked = {port: deque() for port in self.ports}

    def mailbox(self, source: str, kind: str, link: str | None = None, index: int = 0) -> Mailbox:
        """The mailbox of the channel from `source`, made if there is none yet."""
        end = end_of(source, kind)
        found = self.mailboxes.get(end)
        if found is None:
            if not self.mailboxes:
                self.mailboxes = {}
            found = self.mailboxes[end] = Mailbox(source, kind, self, link, index)
        return found

    def put(self, mailbox: Mailbox, message: Message) -> None:
        """A message has arrived; raises `ProtocolError` if it is not the next one of its channel."""
        mailbox.arrived = number = mailbox.arrived + 1
        if message[1] != number and mailbox.kind == MAIL:
            mailbox.arrived -= 1
            raise ProtocolError(
                f"message {message[1]} from {mailbox.source} arrived where {number} was due", source=mailbox.source
            )
        kept = mailbox.kept
        is_head = not kept
        if type(kept) is deque:
            kept.append(message)
        elif not is_head:
            mailbox.kept = deque((kept, message))
        elif number == 1 or len(self.mailboxes) > KEPT_QUEUES:
            mailbox.kept = message
        else:
            mailbox.kept = deque((message,))
        if is_head:
            self.offer(mailbox)
        elif self.ports:
            self._unpark(mailbox, message[2])

    def offer(self, mailbox: Mailbox) -> None:
        """The mailbox has a new head: it takes part in the choice."""
        ready = self.ready
        if ready is NOTHING:
            ready = self.ready = []
        elif len(ready) == LONG and type(ready) is list:
            ready = self.ready = deque(ready)
        ready.append(mailbox)

    def let_go(self) -> None:
        """Nothing waits here: keep no room for it."""
        self.ready = NOTHING
        for mailbox in self.mailboxes.values():
            mailbox.kept = NOTHING

    def spare(self, mailbox: Mailbox) -> None:
        """Nothing waits in this one: where there are many, it keeps no room for it."""
        if len(self.mailboxes) > KEPT_QUEUES:
            mailbox.kept = NOTHING

    def _unpark(self, mailbox: Mailbox, method: str) -> None:
        """What waits for the rest of its join looks again when a port arrives right behind it."""
        waiting = self.parked.get(mailbox.queue[0][2], ())
        if method in self.ports and mailbox in waiting:
            self.parked[mailbox.queue[0][2]].remove(mailbox)
            Inbox.offer(self, mailbox)

    def take(self) -> list[tuple[Mailbox, Message]] | None:
        """Accept the messages of the next enabled action (one, or one per port of a join); None if none is enabled."""
        while ready := self.ready:
            mailbox = ready.popleft() if isinstance(ready, deque) else ready.pop(0)
            if self.ports and mailbox.queue[0][2] in self.ports:
                self.park(mailbox)
                if len(self.joins) > 1:
                    self._park_others()
                if (joined := self._join()) is not None:
                    return joined
                continue
            kept = mailbox.kept
            if type(kept) is deque:
                message = kept.popleft()
            else:
                message, kept = kept, NOTHING
                mailbox.kept = NOTHING
            mailbox.accepted += 1
            if kept:
                self.offer(mailbox)
            elif len(self.mailboxes) > KEPT_QUEUES:
                mailbox.kept = NOTHING
                if not ready:
                    self.ready = NOTHING
            return [(mailbox, message)]
        return None

    def park(self, mailbox: Mailbox) -> None:
        """The head of the mailbox waits for the rest of its join."""
        self.parked[mailbox.queue[0][2]].append(mailbox)

    def _park_others(self) -> None:
        """Every head that has come and is a port waits for its join at once.

        So the choice is among all joins that are enabled: else one of many ports would starve behind those of few.
        """
        for mailbox in [mailbox for mailbox in self.ready if mailbox.queue[0][2] in self.ports]:
            self.ready.remove(mailbox)
            self.park(mailbox)

    def _join(self) -> list[tuple[Mailbox, Message]] | None:
        for position, ports in enumerate(self.joins):
            chosen = self._chosen(ports)
            if chosen is not None:
                self.joins.append(self.joins.pop(position))  # the next choice begins behind this one
                joined = self._accept(ports, chosen)
                self._look_again()
                return joined
        return None

    def _look_again(self) -> None:
        """If another join is enabled too, one of its mailboxes takes part in the choice, behind the others."""
        chosen = next(filter(None, map(self._chosen, self.joins)), None) if len(self.joins) > 1 else None
        if chosen is not None:
            mailbox = chosen[0][1]
            self.parked[mailbox.queue[0][2]].remove(mailbox)
            Inbox.offer(self, mailbox)

    def _chosen(self, ports: tuple[str, ...]) -> list[tuple[str, Mailbox]] | None:
        """A mailbox for each port, in the order of taking; None if one is missing.

        Heads of different mailboxes first; else what stands right behind a head may be taken with it (see `joins`).
        """
        if all(self.parked[port] for port in ports):
            return [(port, self.parked[port][0]) for port in ports]
        runs: dict[tuple[str, ...], Mailbox] = {}
        for mailbox in [mailbox for port in ports for mailbox in self.parked[port]]:
            head, *behind = islice(mailbox.queue, len(ports))
            run = run_of(
                (head[2], *(one[2] for one in takewhile(lambda one: self._may_take(one, ports), behind))), ports
            )
            for size in range(1, len(run) + 1):
                runs.setdefault(run[:size], mailbox)
        return cover(ports, runs)

    def _may_take(self, message: Message, ports: Sequence[str]) -> bool:
        """Whether a message that is not the head of its mailbox may serve one of these ports."""
        return message[2] in ports

    def _accept(self, ports: tuple[str, ...], chosen: list[tuple[str, Mailbox]]) -> list[tuple[Mailbox, Message]]:
        found = {}
        for port, mailbox in chosen:
            if mailbox in self.parked[port]:
                self.parked[port].remove(mailbox)
            found[port] = mailbox, mailbox.queue[0]
            mailbox.queue = without_first(mailbox.queue)
            mailbox.accepted += 1
        for mailbox in dict.fromkeys(mailbox for _, mailbox in chosen):
            if mailbox.queue:
                self.offer(mailbox)
            else:
                self.spare(mailbox)
        return [found[port] for port in ports]

    def waiting(self) -> Iterator[Message]:
        """Every message that has arrived and was not accepted."""
        for mailbox in self.mailboxes.values():
            yield from mailbox.queue
