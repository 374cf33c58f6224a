"""Parts: Parquet files that a sink has written, their names, and the places where they wait.

    OUTPUT/_staged/PART      phase one: whole, on the disk, not to be seen by readers (they skip names with `_` in front)
    OUTPUT/PART              phase two: to be seen (in a Delta table: as soon as its log says so)
    OUTPUT/_rejected/PART    of a past that was given up; until the next commit, for a snapshot of that past may be restored
    OUTPUT/_published/SINK   up to which part this sink has shown all, and in which lives: a reader may have taken some away

A part's name says whose it is, its number, and in which life of the sink it was written: a sink that is restored begins
another life, so part 7 of the past that was given up and part 7 of the one that counts are two names. The `Ledger` is in the
sink's state. From it follows, whatever has happened meanwhile, which parts are to be seen. Imports no Ray.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ray_snapshot.errors import OutputChangedError

STAGED, REJECTED, PUBLISHED = "_staged", "_rejected", "_published"

_NAME = re.compile(r"(?P<sink>.+)-(?P<run>[0-9a-f]{8})-(?P<number>\d{8})-(?P<life>[0-9a-f]{8})\.parquet")


def new_life() -> str:
    """The name of a life; no two are the same."""
    return secrets.token_hex(4)


@dataclass(frozen=True, slots=True)
class Part:
    """What a part's name says."""

    sink: str
    run: str
    """An id that a sink gets at its construction and keeps through all its restores."""
    number: int
    life: str

    @property
    def name(self) -> str:
        return f"{self.sink}-{self.run}-{self.number:08d}-{self.life}.parquet"


def part_of(name: str) -> Part | None:
    """The part of this name; None if it is no part's."""
    found = _NAME.fullmatch(name)
    return Part(found["sink"], found["run"], int(found["number"]), found["life"]) if found else None


@dataclass(slots=True)
class Ledger:
    """Which parts a sink has written, and which of them it has not seen published; its state."""

    sink: str
    run: str
    lives: list[tuple[int, str]]
    """(number of its first part, name) of each life; the last one is now."""
    last: int = 0
    """The number of the last part that was staged."""
    pending: list[int] = field(default_factory=list)
    """Staged, and not known to be published."""

    @classmethod
    def begun(cls, sink: str) -> Ledger:
        """The ledger of a sink that has written nothing."""
        return cls(sink, new_life(), [(1, new_life())])

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Ledger:
        """The ledger of a recorded state, in which a new life of the sink begins."""
        lives = [(int(first), str(life)) for first, life in state["lives"] if first <= state["last"]]
        lives.append((state["last"] + 1, new_life()))
        return cls(state["sink"], state["run"], lives, state["last"], list(state["pending"]))

    def state(self) -> dict[str, Any]:
        """The ledger as plain values, copied, so that later changes of the ledger do not change them."""
        return {
            "sink": self.sink,
            "run": self.run,
            "lives": [list(life) for life in self.lives],
            "last": self.last,
            "pending": list(self.pending),
        }

    def part(self, number: int) -> Part:
        """The part with this number."""
        life = next(life for first, life in reversed(self.lives) if first <= number)
        return Part(self.sink, self.run, number, life)

    def following(self) -> Part:
        """The part to be staged next."""
        return self.part(self.last + 1)

    def staged(self) -> None:
        """Note that the part to be staged next is staged."""
        self.last += 1
        self.pending.append(self.last)

    def published(self, numbers: Iterable[int]) -> None:
        """Note that the parts with these numbers are published: readers can see them."""
        gone = set(numbers)
        self.pending = [number for number in self.pending if number not in gone]

    def holds(self, part: Part) -> bool:
        """Whether the part is one of this past."""
        return part.number <= self.last and part == self.part(part.number)

    def is_mine(self, part: Part | None) -> bool:
        """Whether this sink wrote the part, in this past or in one that was given up."""
        return part is not None and (part.sink, part.run) == (self.sink, self.run)


# ---- files ------------------------------------------------------------------------------------------------------------------


class Place:
    """An output's folder, with what waits beside the output."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def make(self) -> None:
        """The folders, if they are not there."""
        for folder in (self.path, self.path / STAGED, self.path / REJECTED):
            folder.mkdir(parents=True, exist_ok=True)

    def where(self, part: Part) -> str | None:
        """`STAGED`, `REJECTED`, "" (in the output's folder), or None."""
        return next((place for place in ("", STAGED, REJECTED) if (self.path / place / part.name).exists()), None)

    def path_of(self, part: Part, place: str = "") -> Path:
        """The file of a part in a place."""
        return self.path / place / part.name

    def parts(self, ledger: Ledger, place: str) -> list[Part]:
        """The parts of this sink in a place, in their order."""
        found = (part_of(name) for name in os.listdir(self.path / place))
        return sorted((part for part in found if part and ledger.is_mine(part)), key=lambda part: part.number)

    def stage(self, part: Part, rows: pa.Table) -> None:
        """Write a part: the whole file is there, on the disk, or none."""
        import pyarrow.parquet as pq

        path = self.path_of(part, STAGED)
        begun = path.with_name(f".{path.name}")
        pq.write_table(rows, begun, compression="zstd")
        _sync(begun)
        os.replace(begun, path)
        _sync(path.parent)

    def move(self, part: Part, source: str, target: str) -> None:
        """Move a part from one place to another, on the disk; if it is in the other place already, it stays there."""
        try:
            os.rename(self.path_of(part, source), self.path_of(part, target))
        except FileNotFoundError:
            if not self.path_of(part, target).exists():
                raise self.lost(part) from None
        _sync(self.path / source)
        _sync(self.path / target)

    def reject(self, ledger: Ledger, *places: str) -> list[Part]:
        """Move this sink's parts of other pasts from these places to `REJECTED`; delete what was half staged."""
        found = []
        for place in places:
            for part in self.parts(ledger, place):
                if not ledger.holds(part):
                    self.move(part, place, REJECTED)
                    found.append(part)
        for half in (self.path / STAGED).glob(f".{ledger.sink}-{ledger.run}-*"):
            half.unlink(missing_ok=True)
        return found

    def forget_rejected(self, ledger: Ledger) -> None:
        """Delete rejected parts. Something later is committed, so the sink will not go back to the past they are of."""
        for part in self.parts(ledger, REJECTED):
            if not ledger.holds(part):
                self.path_of(part, REJECTED).unlink(missing_ok=True)

    def mark(self, ledger: Ledger, numbers: Iterable[int]) -> None:
        """Note on the disk that readers may soon see these parts, which are all here, and all parts before them."""
        last = max(numbers, default=0)
        if not last or self.marked(ledger).holds(ledger.part(last)):
            return
        path = self._mark_of(ledger)
        path.parent.mkdir(exist_ok=True)
        begun = path.with_name(f".{path.name}")
        with open(begun, "w", encoding="utf-8") as file:
            json.dump({**ledger.state(), "last": last}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(begun, path)
        _sync(path.parent)

    def marked(self, ledger: Ledger) -> Ledger:
        """What has been marked of this sink: it holds what a reader may have seen."""
        try:
            state = json.loads(self._mark_of(ledger).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Ledger(ledger.sink, ledger.run, [])
        return Ledger(ledger.sink, ledger.run, [(first, life) for first, life in state["lives"]], state["last"])

    def _mark_of(self, ledger: Ledger) -> Path:
        return self.path / PUBLISHED / f"{ledger.sink}-{ledger.run}.json"

    def lost(self, part: Part) -> OutputChangedError:
        """The error about a part that is nowhere."""
        return OutputChangedError(
            f"{self.path}: part {part.number} of {part.sink} ({part.name}) is gone, and it was not published: it was removed,"
            " or belongs to a past that was given up and is over; restore a later snapshot",
            path=str(self.path),
        )


def _sync(path: Path) -> None:
    """Return when a file's content, or a folder's list of names, would outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
