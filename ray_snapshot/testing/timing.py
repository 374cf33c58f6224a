"""Timers and timeouts in the states of a space: which may come first, and what that says of the others.

Virtual time passes where nothing else happens: an action may come any time later, so of two timers of one channel that were set
in different actions either may come first, unless the one that was set first is due first however late the other was set
(`instants`). Two of one action come by their durations. Timers of different channels come in any order: a machine may be slow
to accept one. Never imports Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ray_snapshot.testing.instants import NOW_ALONE, Bounds, begun, behind, kept, passed
from ray_snapshot.testing.records import MACHINE, TIMES, Inside, State, When
from ray_snapshot.testing.table import Table

Queue = tuple[tuple[When, int], ...]
"""Timers of one channel, as they were set; those of one action by their durations."""


class Timing:
    """The timers in the states of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._orders: dict[tuple[int, int, int], tuple[tuple[int, ...], ...]] = {}

    def firsts(self, state: State, cell: int) -> tuple[int, ...]:
        """The places in a channel's queue of the timers that may come next."""
        return tuple(order[0] for order in self.orders(state, cell, 1))

    def orders(self, state: State, cell: int, most: int) -> tuple[tuple[int, ...], ...]:
        """The ways in which the next timers of a channel may come, `most` of them: places in its queue."""
        times, value = self._times(state, cell), state[cell]
        found = self._orders.get((times, value, most))
        if found is None:
            found = self._orders[times, value, most] = tuple(
                _orders(self.table.values[times], self.table.values[value], most)
            )
        return found

    def take(self, cells: list[int], cell: int, index: int) -> int:
        """A timer comes; returns its message."""
        table = self.table
        source = table.cells[cell][1][0]
        place = table.cell(TIMES, source)
        queue: Queue = table.values[cells[cell]]
        when, mail = queue[index]
        bounds = _fired(table.values[cells[place]], queue, index)
        assert bounds is not None
        rest = queue[:index] + queue[index + 1 :]
        cells[cell] = table.id_of(rest) if rest else 0
        cells[place] = table.id_of(bounds)
        self._go_on(cells, when)
        self.tidy(cells, source)
        return mail

    def set(self, cells: list[int], name: str, timers: Sequence[tuple[int, float, int]], waiting: int | None) -> None:
        """A machine sets timers, (cell, seconds, message) each, and `waiting` is its cell if it waits with a timeout."""
        table = self.table
        place = table.cell(TIMES, name)
        bounds = begun(table.values[cells[place]] if place < len(cells) and cells[place] else NOW_ALONE)
        instant, clock = len(bounds) - 2, table.values[cells[0]].clock
        table.put(cells, place, table.id_of(bounds))
        for cell, seconds, mail in timers:
            queue = [*(table.values[cells[cell]] or ())]
            queue.append((When(seconds, instant, _due(clock, seconds)), mail))
            queue.sort(key=lambda item: (item[0].instant, item[0].seconds))
            cells[cell] = table.id_of(tuple(queue))
        if waiting is not None:
            record: Inside = table.values[cells[waiting]]
            seconds = record.wait.timeout or 0.0
            cells[waiting] = table.id_of(replace(record, when=When(seconds, instant, _due(clock, seconds))))
        self.tidy(cells, name)

    def end_wait(self, cells: list[int], cell: int, *, is_timeout: bool) -> None:
        """A machine waits no longer; its cell is empty until it has gone on."""
        table, name = self.table, self.table.cells[cell][1]
        record: Inside = table.values[cells[cell]]
        cells[cell] = 0
        if record.when is not None:
            if is_timeout:
                place = table.cell(TIMES, name)
                bounds = passed(table.values[cells[place]], record.when.instant, record.when.seconds)
                cells[place] = table.id_of(bounds)
                self._go_on(cells, record.when)
            self.tidy(cells, name)

    def _go_on(self, cells: list[int], when: When) -> None:
        here = self.table.values[cells[0]]
        if here.clock is not None and when.due is not None:
            cells[0] = self.table.id_of(replace(here, clock=max(here.clock, when.due)))

    def _times(self, state: State, cell: int) -> int:
        return state[self.table.cell(TIMES, self.table.cells[cell][1][0])]

    def tidy(self, cells: list[int], name: str) -> None:
        """Instants at which nothing is set any more are forgotten, the others numbered anew."""
        table, place = self.table, self.table.cell(TIMES, name)
        if place >= len(cells) or not cells[place]:
            return
        bounds: Bounds = table.values[cells[place]]
        longest: list[float | None] = [None] * (len(bounds) - 1)
        own = table.cell(MACHINE, name)
        record = table.values[cells[own]]
        waits = record.when if type(record) is Inside else None
        queues = [cell for cell in table.timers.get(name, ()) if cell < len(cells) and cells[cell]]
        whens = [when for cell in queues for when, _ in table.values[cells[cell]]]
        for when in whens if waits is None else [*whens, waits]:
            longest[when.instant] = max(longest[when.instant] or 0.0, when.seconds)
        left = kept(bounds, longest)
        cells[place] = table.id_of(left) if len(left) > 1 else 0
        if len(left) == len(bounds):
            return
        numbers, count = [], 0
        for most in longest:
            numbers.append(count)
            count += most is not None
        for cell in queues:
            queue = table.values[cells[cell]]
            cells[cell] = table.id_of(
                tuple((when._replace(instant=numbers[when.instant]), mail) for when, mail in queue)
            )
        if waits is not None:
            cells[own] = table.id_of(replace(record, when=waits._replace(instant=numbers[waits.instant])))


def _due(clock: float | None, seconds: float) -> float | None:
    return None if clock is None else round(clock + seconds, 9)


def _fired(bounds: Bounds, queue: Queue, index: int) -> Bounds | None:
    """What is known once a timer has come before the others of its channel; None if it cannot."""
    when = queue[index][0]
    found: Bounds | None = passed(bounds, when.instant, when.seconds)
    for place, (other, _) in enumerate(queue):
        if place == index or found is None:
            continue
        found = behind(found, when.instant, other.instant, when.seconds - other.seconds, is_more=place < index)
    return found


def _firsts(bounds: Bounds, queue: Queue) -> Iterator[int]:
    if queue[0][0].due is not None:  # by the clock there is one order
        yield min(range(len(queue)), key=lambda place: (queue[place][0].due or 0.0, place))
        return
    for index in range(len(queue)):
        if _fired(bounds, queue, index) is not None:
            yield index


def _orders(bounds: Bounds, queue: Queue, most: int) -> Iterator[tuple[int, ...]]:
    if not queue or not most:
        yield ()
        return
    for index in _firsts(bounds, queue):
        after = _fired(bounds, queue, index)
        assert after is not None
        for more in _orders(after, queue[:index] + queue[index + 1 :], most - 1):
            yield (index, *(place + (place >= index) for place in more))
