"""Texts to integers: where in a column of names each of many other names stands, without a Python object for any.

Arrow's `index_in` hashes all names anew at every question, and compares text by text. Here they are hashed once, eight bytes at
a time, into a table that stays for the next question: a third of the time for the first, a fifth for the next ones.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
_Words = list[npt.NDArray[np.uint64]]

_MANY = 10_000
"""From so many names on it is worth while."""

_LONGEST = 64
"""Names of more bytes than this are left to Arrow."""

_AT_ONCE = 1 << 17
"""So many rows are looked up at a time, so that what is made on the way stays in the processor's cache."""

_BYTE = 256
_EMPTY = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UPPER = np.uint64(29)
_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(8)] + [2**64 - 1], np.uint64)
"""By a number of bytes: what keeps so many of a word."""


class NameIndex:
    """Where in an Arrow array of names other names stand; a name that is there twice stands at its first place."""

    def __init__(self, names: Any) -> None:
        """`names`: an Arrow array of type string."""
        self.names = names

    def positions(self, values: Any) -> Integers:
        """Where each of an Arrow array of strings stands; -1 for those (and nulls) that are not there.

        O(values), and O(names) at the first question.
        """
        if len(values) == values.null_count or len(self.names) == 0:
            return np.full(len(values), -1, np.int64)
        if self._table is None or _has_zero_bytes(values):
            return _by_arrow(values, self.names)
        parts = [self._table.find(values[start : start + _AT_ONCE]) for start in range(0, len(values), _AT_ONCE)]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if values.null_count:
            found[values.is_null().to_numpy(zero_copy_only=False)] = -1
        return found

    def positions_of_runs(self, values: Any) -> Integers:
        """`positions` of a column in which equal values mostly stand together, as in a sorted table: a look-up a run.

        Of a name that is there twice it may be either place. O(values).
        """
        if len(values) == values.null_count:
            return np.full(len(values), -1, np.int64)
        runs = pc.run_end_encode(values)
        size = np.diff(runs.run_ends.to_numpy().astype(np.int64), prepend=0)
        if runs.values.equals(self.names[: len(size)]):
            return np.repeat(np.arange(len(size)), size)
        return np.repeat(self.positions(runs.values), size)

    @cached_property
    def _table(self) -> _Table | None:
        """None where Arrow is as fast, or where zeros behind a name would not tell it from another."""
        names = self.names
        if len(names) < _MANY or names.null_count or _has_zero_bytes(names):
            return None
        longest = int(_sizes(names).max())
        return _Table(names, -(-longest // 8)) if 0 < longest <= _LONGEST else None


class Words:
    """A column of few different texts as small numbers: read once, then asked often."""

    def __init__(self, column: Any) -> None:
        """`column`: an Arrow array of type string."""
        encoded = column.dictionary_encode("encode")
        self.words = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy()
        self.codes = codes.astype(np.uint8) if len(self.words) <= _BYTE else codes

    def are(self, *words: str) -> Booleans:
        """Which rows have one of these."""
        found = np.zeros(len(self.codes), np.bool_)
        for code, word in enumerate(self.words):
            if word in words:
                found |= self.codes == code
        return found


class _Table:
    """A hash table with open addresses: a number in each slot, the next slot where one is taken (Knuth, volume 3, 6.4 L)."""

    def __init__(self, names: Any, width: int) -> None:
        """`width`: how many words the longest of the names has."""
        self.width = width
        words = _words(names, width)
        self.rows = np.stack(words, axis=1).view(np.dtype((np.void, 8 * width))).ravel()
        """All words of a name in one item, so that they are fetched together."""
        self.bits = (4 * len(names)).bit_length()
        self.slots = np.full(1 << self.bits, _EMPTY, np.int32)
        number = np.arange(len(names) - 1, -1, -1, dtype=np.int32)  # of equal ones the first is written last
        slot = self._first_slots(words)[::-1]
        while len(number):
            there = self.slots.take(slot)
            is_free = there == _EMPTY
            self.slots[slot[is_free]] = number[is_free]
            there = self.slots.take(slot)
            todo = np.flatnonzero(there != number)  # that is also so of names that are there twice
            goes_on = todo[~self._are_equal(there.take(todo), [word.take(number.take(todo)) for word in words])]
            number, slot = number.take(goes_on), self._next(slot.take(goes_on))

    def find(self, values: Any) -> Integers:
        """Where each of some values stands, or -1; of nulls anything."""
        asked = _words(values, self.width)
        slot = self._first_slots(asked)
        found = self.slots.take(slot)
        todo = np.flatnonzero(~self._are_equal(found, asked) & (found != _EMPTY))
        slot = slot.take(todo)
        asked = [word.take(todo) for word in asked]
        while len(todo):
            slot = self._next(slot)
            there = self.slots.take(slot)
            found[todo] = there
            goes_on = np.flatnonzero(~self._are_equal(there, asked) & (there != _EMPTY))
            todo, slot = todo.take(goes_on), slot.take(goes_on)
            asked = [word.take(goes_on) for word in asked]
        if len(values) and int((sizes := _sizes(values)).max()) > 8 * self.width:
            found[sizes > 8 * self.width] = -1
        return found.astype(np.int64)

    def _are_equal(self, numbers: npt.NDArray[np.int32], asked: _Words) -> npt.NDArray[np.bool_]:
        """Whether the names of these numbers have these words; of an empty slot anything."""
        there = self.rows.take(numbers, mode="wrap").view(np.uint64).reshape(-1, self.width)
        found: npt.NDArray[np.bool_] = there[:, 0] == asked[0]
        for place, word in enumerate(asked[1:], 1):
            found &= there[:, place] == word
        return found

    def _first_slots(self, words: _Words) -> npt.NDArray[np.int64]:
        """By Fibonacci hashing of all words (Knuth, volume 3, 6.4), of which the upper bits are mixed in once more."""
        found = words[0] * _GOLDEN
        for word in words[1:]:
            found ^= found >> _UPPER
            found += word
            found *= _GOLDEN
        found ^= found >> _UPPER
        found *= _GOLDEN
        return (found >> np.uint64(64 - self.bits)).view(np.int64)

    def _next(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return (slots + 1) & ((1 << self.bits) - 1)


def _by_arrow(values: Any, names: Any) -> Integers:
    found = pc.fill_null(pc.index_in(values, value_set=names), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(pc.is_null(values).to_numpy(zero_copy_only=False), -1, found) if values.null_count else found


def _offsets(texts: Any) -> npt.NDArray[np.int32]:
    found: npt.NDArray[np.int32] = np.frombuffer(texts.buffers()[1], np.int32)[
        texts.offset : texts.offset + len(texts) + 1
    ]
    return found


def _sizes(texts: Any) -> npt.NDArray[np.int32]:
    """How many bytes each has; a null may have any number."""
    found: npt.NDArray[np.int32] = np.diff(_offsets(texts))
    return found


def _data(texts: Any) -> memoryview:
    """The bytes of all, one behind the other."""
    offsets, data = _offsets(texts), texts.buffers()[2]
    return memoryview(b"" if data is None else data)[offsets[0] : offsets[-1]]


def _has_zero_bytes(texts: Any) -> bool:
    data = np.frombuffer(_data(texts), np.uint8)
    return bool(len(data)) and int(data.min()) == 0


def _words(texts: Any, width: int) -> _Words:
    """The first `width` words of eight bytes of each, zeros behind their ends."""
    padded = np.frombuffer(b"".join([_data(texts), bytes(8 * width)]), np.uint8)
    offsets, sizes = _offsets(texts), _sizes(texts)
    begins = offsets[:-1] - offsets[0]
    least, most = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
    found = []
    for place in range(0, 8 * width, 8):
        if least == most:
            word = np.ndarray((len(sizes),), np.uint64, padded, place, (most,)) & _MASKS[min(max(most - place, 0), 8)]
        else:
            word = np.ndarray((len(padded) - place - 7,), np.uint64, padded, place, (1,))[begins]
            if least < place + 8:
                word &= _MASKS[np.clip(sizes - place, 0, 8)]
        found.append(word)
    return found
