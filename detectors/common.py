"""What all detectors share: whether a snapshot can be judged at all, and name look-ups on Arrow columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import SettingError
from ray_snapshot.name_index import NameIndex
from ray_snapshot.names import CALLS, name_ranges, noun_of
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Verdict, grade_of

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_DENSE = 8
"""Values up to so many times their number are marked in a row of flags, not sorted."""

_DIGIT_BITS = 16
_DIGIT = 2**_DIGIT_BITS - 1


_COVERAGE_UNKNOWN = "everything: the snapshot does not say what it covers"


def check_name(name: object) -> str:
    """Return `name` if a detector may bear it; raises `SettingError`."""
    if not isinstance(name, str) or not name:
        raise SettingError(f"a detector's name is a text that is not empty, not {name!r}")
    return name


class NamedDetector:
    """A detector that has no setting but its name, and alarms when it holds."""

    type: ClassVar[str]
    """What it is called in a spec, and by default."""
    stable: bool
    alarm_when: bool | None = True
    looks_at: frozenset[str] = frozenset({"statuses"})

    def __init__(self, *, name: str | None = None) -> None:
        self.name = check_name(self.type if name is None else name)
        self.spec: dict[str, Any] = {"type": self.type, "name": self.name}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


def with_statuses(machines: pa.Table, statuses: Mapping[str, str]) -> pa.Table:
    """Rows of `machines` in which these machines have these statuses; those that are not named keep theirs."""
    at = machines.schema.get_field_index("status")
    pairs = zip(machines["machine"].to_pylist(), machines["status"].to_pylist(), strict=True)
    changed = pa.array([statuses.get(name, status) for name, status in pairs], pa.string())
    return machines.set_column(at, machines.schema.field(at), changed.cast(machines.schema.field(at).type))


_WORKER = re.compile(r"\bray-worker-(\d+)(?:-\d+)?\b")
"""What a snapshot calls a worker of Ray's that runs plain tasks, with its process."""


def with_workers(snapshot: Snapshot, text: str) -> str:
    """`text` for people: in place of a worker the plain task that it runs, or "a worker of Ray's (process 1234)"."""
    if "ray-worker-" not in text:
        return text
    machines = snapshot.tables["machines"].select(["machine", "class_name", "host"]).to_pylist()
    tasks: dict[str, list[str]] = {}
    for row in machines:
        if row["class_name"] == "":
            tasks.setdefault(str(row["host"]), []).append(row["machine"])

    def shown(found: re.Match[str]) -> str:
        runs = tasks.get(f"pid-{found[1]}", [])
        return runs[0] if len(runs) == 1 else f"a worker of Ray's (process {found[1]})"

    return _WORKER.sub(shown, text)


_THREAD = re.compile(r"thread (\S+?) (\(.+\) of \S+)")


def unobserved(items: Iterable[Any]) -> list[str]:
    """What the coverage names, each once; threads that are alike together: "10 threads client_[0-9] (app.py:7) of driver"."""
    groups: dict[str, dict[str, str]] = {}
    for text in map(str, items):
        found = _THREAD.fullmatch(text)
        groups.setdefault(found[2] if found else text, {})[text] = found[1] if found else text
    return [
        f"{len(names)} threads {name_ranges(names.values())} {place}" if len(names) > 1 else next(iter(names))
        for place, names in groups.items()
    ]


def answer(
    detector: Detector, snapshot: Snapshot, holds: bool | None, evidence: dict[str, Any], sentence: str
) -> Verdict:
    """The verdict of `detector` on `snapshot`."""
    return Verdict(
        detector=detector.name,
        holds=holds,
        evidence=evidence,
        sentence=with_workers(snapshot, sentence),
        snapshot_id=snapshot.snapshot_id,
        run_id=snapshot.run_id,
        detector_spec=getattr(detector, "spec", None),
        alarm=holds is not None and holds is detector.alarm_when,
        grade=grade_of(holds),
    )


def unsound(snapshot: Snapshot) -> str | None:
    """Why nothing can be concluded from this snapshot; None if it is complete and its cut consistent."""
    if snapshot.status != "complete":
        return f"the snapshot was aborted ({snapshot.abort_reason or 'no reason recorded'})"
    if not snapshot.consistent:
        repeats = snapshot.repeats_by_design
        design = f", by design: {repeats} messages from outside it are in it ({snapshot.protocol})" if repeats else ""
        return f"the cut is not consistent{design}"
    return None


def uncovered(snapshot: Snapshot) -> list[Any]:
    """What the snapshot did not observe; a snapshot that says nothing about its coverage covers nothing."""
    return reaching(snapshot) + list(snapshot.coverage.get("apart", ()))


def reaching(snapshot: Snapshot) -> list[Any]:
    """`uncovered` without `apart`: plain tasks that can reach no machine, for they were given no handle and no ref."""
    return list(snapshot.coverage.get("uncovered", [_COVERAGE_UNKNOWN]))


def one_array(column: Any) -> Any:
    """A column as one Arrow array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def texts(column: Any) -> Any:
    """A column of strings as one Arrow array of type string, however the table was read."""
    column = one_array(column)
    return column if column.type == pa.string() else column.cast(pa.string())


def positions(values: Any, names: Any) -> Integers:
    """Where in `names` each of `values` stands; -1 for those (and nulls) that are not there."""
    return NameIndex(names).positions(values)


def in_order(values: Integers) -> Integers | slice:
    """What puts `values` (none negative) in ascending order, equal ones as they stand; linear: by 16 bits at a time."""
    if (values[1:] >= values[:-1]).all():
        return slice(None)
    order = np.argsort((values & _DIGIT).astype(np.uint16), kind="stable")
    for shift in range(_DIGIT_BITS, int(values.max(initial=0)).bit_length(), _DIGIT_BITS):
        digit = ((values >> shift) & _DIGIT).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def is_any_of(column: Any, *values: str) -> Booleans:
    """Which rows of a column of strings have one of `values`."""
    column, wanted = one_array(column), pa.array(values, pa.string())
    is_encoded = pa.types.is_dictionary(column.type)
    each = texts(column.dictionary if is_encoded else column)
    found: Booleans = pc.is_in(each, value_set=wanted).to_numpy(zero_copy_only=False)
    return np.append(found, None in values)[integers(column.indices, -1)] if is_encoded else found


def integers(column: Any, null: int) -> Integers:
    """A column of integers in numpy, nulls replaced."""
    found: Integers = pc.fill_null(column, null).to_numpy().astype(np.int64)
    return found


def distinct(values: Integers) -> Integers:
    """Each of `values` once, ascending (not by `np.unique`, which hashes: slow on millions)."""
    if len(values) and values.min() >= 0 and (most := int(values.max())) <= _DENSE * len(values):
        found = np.zeros(most + 1, np.bool_)
        found[values] = True
        return np.flatnonzero(found)
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def at_most(lines: Sequence[str], most: int, lead: str = "... ") -> list[str]:
    """The first of these, and "... and 7 more"."""
    more = len(lines) - most
    return [*lines[:most], *[f"{lead}and {more:,} more"] * (more > 0)]


def held_texts(holders: Mapping[str, Collection[str]]) -> list[str]:
    """ "a holds CPU 1", "b-[0-1] each hold CPU 2": names by what they hold."""
    return [
        f"{name_ranges(those)} {'holds' if len(those) == 1 else 'each hold'} {what}" for what, those in holders.items()
    ]


def plural(count: int, word: str, words: str = "") -> str:
    """ "1 machine", "2 machines"; `words`: of more than one, if that is not `word` with an s."""
    return f"{count:,} {word if count == 1 else words or f'{word}s'}"


def parties(snapshot: Snapshot, count: int) -> str:
    """ "2 machines" of a system; "2 actors" of an app, whose driver counts as one."""
    return plural(count, noun_of(snapshot.protocol))


def at_rest(snapshot: Snapshot) -> str:
    """What is said of those that are done."""
    return "at rest or ended" if snapshot.protocol == CALLS else "passive or stopped"


def lasted(seconds: float) -> str:
    """ "12 s", "5 min", "3 h"."""
    for unit, name in ((3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"
