"""`ray-snapshot explore --by-hand`: go through a system, or on from a snapshot, step by step, without Ray.

The enabled steps are listed, one is chosen, and what changed is shown. On a terminal a mistake is told, and asked again;
from a pipe or a file it is an error with its line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ray_snapshot.commands.beginnings import Beginning
from ray_snapshot.errors import RaySnapshotError, SettingError

if TYPE_CHECKING:
    from ray_snapshot.testing.schedules import Schedule
    from ray_snapshot.testing.stepping import Choice, Walk

PROMPT = "step> "
MOST_LISTED = 30
HELP = (
    "a number: take that step",
    "b: back, undo the last step",
    "s: the state: machines, and what is in flight",
    "l: list all enabled steps",
    "t: what happened so far",
    "d FILE: draw it as a space-time diagram (SVG)",
    "w FILE: write its schedule, for testing.replay and --schedule",
    "h: this; q: quit",
)


def walk(begin: Beginning, crashes: int, schedule: str | None) -> None:
    """Ask which step comes next, until `q`; along the schedule first, with its crashes."""
    from ray_snapshot.testing.runs import crashes_of
    from ray_snapshot.testing.schedules import schedule_of
    from ray_snapshot.testing.stage import Stage
    from ray_snapshot.testing.stepping import Walk

    way = None if schedule is None else schedule_of(schedule)
    if way is not None:
        crashes = max(crashes, crashes_of(way.settings))
    build = begin.build()
    with Stage(build) as stage:
        walk = Walk(stage, crashes=crashes)
        if way is not None:
            _follow(walk, way)
        Dialogue(walk, getattr(build, "__name__", "a system")).run()


def _say(text: str) -> None:
    """A line; what it holds of states and messages is nothing that a terminal obeys."""
    from ray_snapshot.views.tables import one_line

    room = len(text) - len(text.lstrip())
    print(text[:room] + one_line(text[room:]))


def _follow(walk: Walk, way: Schedule) -> None:
    walk.follow(way)
    for number, line in enumerate(walk.told(), 1):
        _say(f"{number:>4}. {line}")


class Dialogue:
    """Asks what to do, and does it."""

    def __init__(self, walk: Walk, title: str) -> None:
        self.walk, self.title = walk, title
        self.is_asking = sys.stdin.isatty()
        self.listed: list[Choice] = []

    def run(self) -> None:
        """Until `q`, or the end of what is typed."""
        _say(self.title)
        self.show_state()
        self.show_choices()
        for number, line in self._lines():
            word, _, rest = line.partition(" ")
            if word in ("q", "quit", "exit"):
                return
            try:
                self._do(word, rest.strip())
            except (RaySnapshotError, OSError) as error:
                if not self.is_asking:
                    raise SettingError(f"line {number}, {line[:100]!r}: {error}") from error
                _say(str(error))

    def _lines(self) -> Iterator[tuple[int, str]]:
        number = 0
        while True:
            if self.is_asking:
                print(PROMPT, end="", flush=True)
            line = sys.stdin.readline()
            if not line:
                if self.is_asking:
                    print()
                return
            number += 1
            if line.strip():
                yield number, line.strip()

    def _do(self, word: str, rest: str) -> None:
        if word.isdecimal():
            self._take(int(word))
        elif word in ("b", "back"):
            if not self.walk.back():
                raise SettingError("this is the beginning: nothing to undo")
            self.show_choices()
        elif word == "s":
            self.show_state()
        elif word == "l":
            self.show_choices(most=None)
        elif word == "t":
            for number, line in enumerate(self.walk.told(), 1):
                _say(f"{number:>4}. {line}")
        elif word in ("d", "w"):
            self._write(word, rest)
        elif word in ("h", "?", "help"):
            print("\n".join(HELP))
        else:
            raise SettingError(f"{word[:40]!r} is no command: {'; '.join(HELP)}")

    def _take(self, number: int) -> None:
        if not 1 <= number <= len(self.listed):
            there = f"there are 1 to {len(self.listed)}" if self.listed else "nothing is left to happen; b goes back"
            raise SettingError(f"there is no step {number}: {there}")
        _say(f"{len(self.walk.trail) + 1:>4}. {self.walk.take(self.listed[number - 1].move)}")
        self.show_choices()

    def _write(self, word: str, path: str) -> None:
        from ray_snapshot.commands.files import write_file

        if not path:
            raise SettingError(f"{word} FILE: name the file")
        write_file(path, self.walk.svg(self.title) if word == "d" else f"{self.walk.schedule}\n")
        _say(f"written: {path}")

    def show_state(self) -> None:
        """Machines, and what is in flight."""
        rows = [*self.walk.machines()]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        for row in rows:
            _say(
                "  "
                + "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]).rstrip()
            )
        for channel, held in self.walk.channels():
            _say(f"  {channel}: {held}")

    def show_choices(self, most: int | None = MOST_LISTED) -> None:
        """The enabled steps, with their numbers."""
        self.listed = self.walk.choices()
        for number, choice in enumerate(self.listed[:most], 1):
            _say(f"{number:>6}  {choice.text}")
        if most is not None and len(self.listed) > most:
            _say(f"        and {len(self.listed) - most} more: l lists all")
        if self.walk.failure is not None:
            print("        the action raised, and the system has failed: b goes back")
        elif not self.listed:
            print("        nothing is left to happen")
            for sentence in self.walk.verdicts():
                _say(f"        {sentence}")
