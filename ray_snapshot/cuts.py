"""What is wrong with a cut: looked for in columns; only channels that are not plainly right are looked at one by one.

A cut is right where each channel's counts add up, and its messages in flight are those that were sent and not accepted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot


_CHANNEL = ("source", "target", "kind")
_Key = tuple[str, str, str]
"""Source, target and kind of a channel."""

_COUNTS = ("sent_count", "accepted_count", "settled_count", "in_flight_count", "duplicate_count")


def problems_of(snapshot: Snapshot, *, may_repeat: bool = False) -> list[str]:
    """Why a complete snapshot is no cut, some 20 sentences at most; `may_repeat`: messages from outside may be in it."""
    found = _count_problems(snapshot)
    messages, channels = snapshot.tables["messages"], snapshot.tables["channels"]
    if not messages.num_rows and not channels.num_rows:
        return found
    runs = _runs(messages)
    if not channels.num_rows:
        return found + _strays(_numbers_of(runs), channels)
    counts = {name: channels[name].to_numpy(zero_copy_only=False) for name in _COUNTS}
    balance = counts["sent_count"] - counts["accepted_count"] - counts["settled_count"] + counts["duplicate_count"]
    # A channel with nothing in flight, by its counts, is right if they add up: most channels are looked at no further.
    rows = np.flatnonzero((balance != 0) | (counts["in_flight_count"] != 0) | (counts["duplicate_count"] != 0))
    looked_at = channels.select([*_CHANNEL, *_COUNTS]).take(rows)
    are_right, are_of_right = _right(looked_at, runs)
    numbers, looked_at = _numbers_of(runs, ~are_of_right), looked_at.filter(~are_right)
    for source, target, kind, *values in zip(*(column.to_pylist() for column in looked_at.columns), strict=True):
        recorded = numbers.pop((source, target, kind), [])
        sent, accepted, settled, in_flight, duplicate = values
        is_plain = in_flight == len(recorded) == sent - accepted and not (settled or duplicate)
        if is_plain and _are_all(recorded, accepted + 1, sent):
            continue
        counted = dict(zip(_COUNTS, values, strict=True))
        found += _channel_problems((source, target, kind), counted, recorded, may_repeat=may_repeat)
        if len(found) >= LIMITS.told_problems:
            return [*found, "and perhaps more"]
    return found + _strays(numbers, channels)


def _are_all(numbers: Sequence[int], first: int, last: int) -> bool:
    """Whether these, of which there are as many, are the numbers from the first to the last, in their order."""
    expected = range(first, last + 1)
    return numbers == expected if isinstance(numbers, range) else numbers == [*expected]


def _strays(numbers: Mapping[_Key, Sequence[int]], channels: pa.Table) -> list[str]:
    """Messages whose channel says that nothing is in flight, or is not there."""
    if not numbers:
        return []
    known = set(zip(*(channels[name].to_pylist() for name in ("source", "target", "kind")), strict=True))
    return [
        f"{_named(key)} {'says 0 in flight, but' if key in known else 'has no row in channels, but'}"
        f" {len(found)} messages are recorded"
        for key, found in numbers.items()
    ][: LIMITS.told_problems]


def _count_problems(snapshot: Snapshot) -> list[str]:
    found = []
    here, absent = snapshot.parted
    names = here["machine"]
    is_rising = pc.all(pc.less(names[:-1], names[1:])).as_py()  # as we write them: then no name is there twice
    is_repeated = absent is not None and absent.brought is not None and absent.brought.repeats(names)
    if is_repeated or (is_rising is not True and len(names) != pc.count_distinct(names).as_py()):
        found.append("a machine is recorded twice")
    for table, count in (("machines", "machine_count"), ("channels", "channel_count"), ("messages", "in_flight_count")):
        said = getattr(snapshot, count)
        rows = here.num_rows if table == "machines" else snapshot.tables[table].num_rows
        rows += absent.count if table == "machines" and absent is not None else 0
        if said != rows:
            found.append(f"{count} is {said}, but the table {table} has {rows} rows")
    return found


@dataclass(frozen=True, slots=True)
class _Runs:
    """Messages in flight; those of one channel that stand together are a run."""

    recorded: pa.ChunkedArray
    """The number of each message; null: it is not known."""
    numbers: npt.NDArray[np.int64]
    """The same; of no moment where they are not known."""
    channels: pa.Table
    """Of each run."""
    firsts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    """Of each run: its first message, and the one behind its last."""
    have_gaps: npt.NDArray[np.bool_]
    """Whether there are numbers in a run that do not follow on each other, or are not known."""


def _runs(messages: pa.Table) -> _Runs:
    """The runs of messages; of mail, creations (number 0) are counted with hosts, not with channels."""
    if pc.any(pc.equal(messages["number"], 0)).as_py():
        is_counted = pc.or_kleene(pc.not_equal(messages["number"], 0), pc.equal(messages["kind"], "call"))
        messages = messages.filter(pc.fill_null(is_counted, True))
    channels = pa.table([messages[name].cast(pa.string()) for name in _CHANNEL], _CHANNEL)
    recorded = messages["number"]
    numbers = pc.fill_null(recorded, 0).to_numpy()
    if not len(numbers):
        none = np.zeros(0, np.int64)
        return _Runs(recorded, numbers, channels, none, none, none.astype(np.bool_))
    firsts = np.append(0, 1 + np.flatnonzero(_differ_from_the_next(channels)))
    ends = np.append(firsts[1:], len(numbers))
    is_gap = np.append(np.diff(numbers) != 1, False)
    is_gap[ends - 1] = False
    is_gap |= pc.is_null(recorded).to_numpy()
    return _Runs(recorded, numbers, channels.take(firsts), firsts, ends, np.logical_or.reduceat(is_gap, firsts))


def _numbers_of(runs: _Runs, flags: npt.NDArray[np.bool_] | None = None) -> dict[_Key, Sequence[int]]:
    """Message numbers per channel, of those runs only that have a flag; a range where they follow on each other."""
    which = np.arange(len(runs.firsts)) if flags is None else np.flatnonzero(flags)
    keys = zip(*(column.to_pylist() for column in runs.channels.take(which).columns), strict=True)
    of_runs = (column[which].tolist() for column in (runs.firsts, runs.ends, runs.have_gaps))
    found = defaultdict[_Key, list[Sequence[int]]](list)
    for key, first, end, has_gaps in zip(keys, *of_runs, strict=True):
        least = int(runs.numbers[first])
        found[key].append(runs.recorded[first:end].to_pylist() if has_gaps else range(least, least + end - first))
    return {key: some[0] if len(some) == 1 else [*chain.from_iterable(some)] for key, some in found.items()}


def _right(channels: pa.Table, runs: _Runs) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Of channels, whether what is in flight by their counts is recorded, as one run; and of runs, whether they are such a one.

    Of other channels nothing is said: each is looked at by itself.
    """
    sent, accepted, settled, in_flight, duplicate = (channels[name].to_numpy() for name in _COUNTS)
    of_runs = np.zeros(len(runs.firsts), np.bool_)
    if not len(of_runs):
        return np.zeros(len(sent), np.bool_), of_runs
    names = _as_texts(runs.channels)
    place, first = (_places(some, names) for some in (_as_texts(channels), names))
    counts, is_alone = runs.ends - runs.firsts, np.bincount(first + 1, minlength=len(first) + 1)[1:] == 1
    are_right = (place >= 0) & ~runs.have_gaps[place] & is_alone[place] & (settled == 0) & (duplicate == 0)
    are_right &= (counts[place] == in_flight) & (sent - accepted == in_flight) & (sent >= accepted)
    are_right &= runs.numbers[runs.firsts[place]] == accepted + 1
    are_right &= np.bincount(place + 1)[place + 1] == 1  # of a channel that is listed twice, nothing is said
    of_runs[place[are_right]] = True
    return are_right, of_runs


def _as_texts(channels: pa.Table) -> pa.Array:
    """A text for each channel, the same for the same: lengths stand in front, so no two names look like two others together."""
    source, target, kind = (channels[name].cast(pa.string()).combine_chunks() for name in _CHANNEL)
    lengths = (pc.binary_length(column).cast(pa.string()) for column in (source, target))
    return pc.binary_join_element_wise(*lengths, source, target, kind, ":")


def _places(texts: pa.Array, names: pa.Array) -> npt.NDArray[np.int64]:
    """Where each text stands first among the names; -1 if it does not, or is not known."""
    found: npt.NDArray[np.int64] = pc.index_in(texts, names, skip_nulls=True).fill_null(-1).to_numpy().astype(np.int64)
    return found


def _differ_from_the_next(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Of each row but the last, whether one of its values is another than in the row behind it, or not known."""
    differ: Any = False
    for column in rows.columns:
        differ = pc.or_(differ, pc.fill_null(pc.not_equal(column[:-1], column[1:]), True))
    return np.asarray(differ, dtype=np.bool_)


def _channel_problems(key: _Key, channel: dict[str, int], numbers: Sequence[int], *, may_repeat: bool) -> list[str]:
    sent, accepted, in_flight = channel["sent_count"], channel["accepted_count"], channel["in_flight_count"]
    settled, duplicate = channel["settled_count"], channel["duplicate_count"]
    if accepted > sent + duplicate:
        text = f"accepted {accepted} messages though only {sent} were sent inside the cut"
    elif sent - accepted - settled - in_flight + duplicate != 0:
        text = f"sent {sent}, but accepted {accepted} + in flight {in_flight} + settled {settled} do not add up to it"
    elif len(numbers) != in_flight:
        text = f"says {in_flight} in flight, but {len(numbers)} messages are recorded"
    elif len(set(numbers)) != len(numbers):
        text = "records the same message number twice"
    elif key[2] == "mail" and None in numbers:
        text = "records a message without its number"
    elif key[2] == "mail" and not settled and not duplicate and sorted(numbers) != list(range(accepted + 1, sent + 1)):
        text = f"records numbers {min(numbers)} to {max(numbers)} in flight, not {accepted + 1} to {sent}"
    elif duplicate and not may_repeat:
        text = f"accepted {duplicate} messages that were sent outside the cut"
    else:
        return []
    return [f"{_named(key)} {text}"]


def _named(key: _Key) -> str:
    return f"channel {key[0]} -> {key[1]} ({key[2]})"
