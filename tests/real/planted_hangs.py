"""The planted hangs of `tests/real/programs`: what `ray-snapshot diagnose` says of each from a second terminal."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from catalogue import Hang, Program
from clean import ran
from real_runs import BIN, BOUND_S, environment_of
from started import started
from surroundings import around

EVERY_S = 1
AFTER_S = 40.0
"""So long after the program's last line a look is taken."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of the table of hangs."""

    hang: str
    after: str
    missing: list[str]
    """What of the cause the answer does not name; empty: told."""
    grade: str
    """proven, suspected, cannot be told, or none for "No deadlock"."""
    place: str
    """The marked line that the answer names, the first of several."""
    text: str

    @property
    def is_told(self) -> bool:
        return not self.missing


def marked(path: Path, hang: str) -> list[str]:
    """`FILE:LINE` of the lines at which this hang stands."""
    lines = enumerate(path.read_text().splitlines(), 1)
    marks = ((number, line.partition("# HANG ")[2].split()) for number, line in lines)
    return [f"{path.name}:{number}" for number, names in marks if hang in names]


def answer_to(program: Program, hang: Hang, after_s: float = AFTER_S) -> Answer:
    """Run the program into its hang, and type what it says on how to diagnose it."""
    name = f"{program.name}-{hang.name}"
    command = [BIN / "ray-snapshot", "run", "--every", str(EVERY_S), "--name", name, program.path]
    command += [*program.arguments, hang.name]
    with around(program) as settings:
        own = environment_of(program) | settings
        with started(command, env=own, cwd=program.path.parent, seconds=BOUND_S) as process:
            assert process.stderr is not None
            said = ""
            while "ray-snapshot: watching" not in said:
                line = process.stderr.readline()
                assert line, f"{name} has ended:\n{said}"
                said += line
            time.sleep(after_s)
            command = said.rpartition("from another terminal: ")[2].split()
            done = ran(BIN / command[0], *command[1:], env=own, cwd=program.path.parent)
            process.terminate()
            process.wait(BOUND_S)
    return judged(program, hang, done.returncode, done.stdout + done.stderr)


def judged(program: Program, hang: Hang, exit_code: int, text: str) -> Answer:
    """Told is what names a marked line and every part of the cause."""
    places = [place for place in marked(program.path, hang.name) if re.search(rf"{re.escape(place)}\b", text)]
    missing = [part for part in hang.cause if not re.search(part, text)]
    missing += [] if places else ["its line"]
    return Answer(hang.name, hang.after, missing, _grade(exit_code, text), places[0] if places else "", text)


def _grade(exit_code: int, text: str) -> str:
    if exit_code == 3:
        return "suspected" if re.search(r"\bsuspected\b", text) else "proven"
    return {0: "none", 4: "cannot be told"}.get(exit_code, f"exit code {exit_code}")
