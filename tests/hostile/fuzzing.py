"""A seed makes a hostile history and a command line; whatever they are, the command must keep what `problems` lists.

`python tests/hostile/fuzzing.py SEED ...` (or `FIRST-LAST`) replays seeds, and says what each of them was.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from random import Random

import crafted
import damages
import pyarrow as pa
import typer
from hostile_commands import PROGRAM, as_process

from ray_snapshot import cli
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History, HistoryWriter, checkpoints
from ray_snapshot.schema import ACTIONS
from ray_snapshot.snapshot import Snapshot

SECONDS = 60
"""A case that takes longer hangs: it takes a quarter of a second."""
MOST_BYTES = 1_000_000_000
HIDDEN = {chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2066)} - {"\n", "\t"}
CODES = {"verify": (0, 1, 2), "witness": (0, 1, 2), "simulate": (0, 1, 2)}
READING = {"list", "show", "verdicts", "verify", "compact", "vacuum", "witness"}
APART = {"restore"}
"""Commands that change the process that they run in."""


@dataclass
class Case:
    """What a seed made, and what came of it."""

    seed: int
    damages: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = [*self.said, *(f"PROBLEM: {problem}" for problem in self.problems)]
        return f"seed {self.seed}: {', '.join(self.damages) or 'undamaged'}\n  " + "\n  ".join(found)


# ---- what there is before -----------------------------------------------------------------------------------------------


def honest(path: Path) -> Path:
    """A small history with a row in every table, checkpoints, and a trace that can be witnessed."""
    crafted.plain_history(path, 2)
    at = crafted.snapshot(0).started_at
    creation = {"kind": "mail", "number": 0, "method": "__init__", "class": "teller:Teller", "args": [3]}
    deposit = {"kind": "mail", "number": 1, "method": "deposit", "args": [4]}
    trace = [
        ("driver", 1, "send", [], [{"target": "t", **creation}]),
        ("driver", 2, "send", [], [{"target": "t", **deposit}]),
        ("t", 1, "__init__", [{"source": "driver", **creation}], []),
        ("t", 2, "deposit", [{"source": "driver", **deposit}], []),
    ]
    rows = [
        {"run_id": "traced", "machine": machine, "number": number, "host": "host-0", "method": method,
         "accepted": json.dumps(accepted), "sent": json.dumps(sent), "colour": int(number == 2),
         "acted_at": at + timedelta(seconds=order), "is_over": True}
        for order, (machine, number, method, accepted, sent) in enumerate(trace)
    ]  # fmt: skip
    taken = Snapshot.from_rows(
        machines=[
            {"machine": "t", "class_name": "Teller", "state": {"balance": 3}, "accepted_count": 1},
            {"machine": "driver", "class_name": "driver", "host": "driver", "state": None, "sent_count": 1},
        ],
        calls=[{"machine": "t", "call_id": "c-0", "caller": "driver", "method": "run", "call_site": "app.py:3"}],
        waits=[{"machine": "t", "call_id": "c-0", "on_machine": "driver", "waiting_since": at}],
        snapshot_id="traced-1", system="traced", run_id="traced", sequence=1, started_at=at, completed_at=at,
    )  # fmt: skip
    shape = {"class_name": "Teller", "version": "1", "run_id": "traced", "module": "teller", "first_seen_at": at,
             "fields": '[{"name": "balance", "type": "int"}]', "json_schema": "{}"}  # fmt: skip
    with HistoryWriter(path) as writer:
        writer.add(taken)
        writer.add_actions(pa.Table.from_pylist(rows, schema=ACTIONS), system="traced")
        writer.add_classes([shape], system="traced")
    return path


def prepared(folder: Path) -> Path:
    """The honest history, a sentinel outside of it, and the user's own programs."""
    history = honest(folder / "honest")
    crafted.sentinel(folder / "outside", history)
    work = folder / "work"
    work.mkdir()
    (work / PROGRAM).write_text("print('done')\n")
    (work / "teller.py").write_text(
        "import ray_snapshot as rs\n\n\nclass Teller(rs.SnapshotMixin):\n    def __init__(self, balance):\n"
        "        self.balance = balance\n\n    def deposit(self, amount):\n        self.balance += amount\n"
    )
    return folder


# ---- command lines ------------------------------------------------------------------------------------------------------

ODD = (
    "", " ", "-", "--", "-1", "-0", "-99999999999999999999", "0", "1e400", "nan", "2" * 400, "a" * 5_000,
    "b/" * 2_500, "nul\0", "~nobody-at-all/h", "latest", "bank", "bank-0", "bank-00001", "\x1b[31m", "\u202e",
    "\udcff", "/dev/zero", "/dev/null", "/", "..", "os:system", "--json", "--help", "[", "*", "%s", "{0}", "1h",
    "30d", "-5d", "1e9d", "99999999999d", "0s", "traced", "traced-1", "teller.py",
)  # fmt: skip
"""Arguments as they may come."""

OPTIONS: dict[str, Sequence[str]] = {
    "list": ("--system", "--run", "--limit", "--json"),
    "show": ("--system", "--limit", "--json"),
    "verdicts": ("--system", "--run", "--detector", "--snapshot", "--limit", "--alarms", "--json"),
    "verify": ("--system", "--json"),
    "compact": ("--keep", "--keep-every", "--dry-run", "--json"),
    "vacuum": ("--keep-hours", "--keep", "--keep-every", "--dry-run", "--json"),
    "witness": ("--from", "--svg", "--shiviz", "--json", "--module"),
    "restore": ("--hosts",),
    "analyze": ("--from", "--top", "--between", "--every"),
    "simulate": (
        "--topology",
        "--events",
        "--schedule",
        "--seed",
        "--protocol",
        "--unaligned-after",
        "--snapshot",
        "--json",
    ),
    "synth": ("--machines", "--snapshots", "--anomalies", "--seed", "--every", "--system"),
    "run": ("--every", "--detect", "--exit-on", "--name"),
    "snapshot": ("--address", "--timeout"),
    "diagnose": ("--address", "--timeout"),
}
FLAGS = {"--json", "--alarms", "--dry-run"}
FITTING: dict[str, Sequence[str]] = {
    "--system": ("bank", "traced"), "--run": ("run", "tr"), "--limit": ("0", "1"), "--detector": ("termination",),
    "--snapshot": ("latest", "-2"), "--keep": ("1d", "0s"), "--keep-every": ("1h",), "--keep-hours": ("0", "1"),
    "--from": ("-2",), "--svg": ("out.svg",), "--shiviz": ("out.log",), "--module": ("teller.py",),
    "--hosts": ("1",),
}  # fmt: skip


def command_line(chance: Random, history: Path) -> list[str]:
    """A command on the history, as a rule; or one with odd arguments alone."""
    if chance.random() < 0.12:
        return odd_line(chance)
    name = chance.choice(sorted(READING)) if chance.random() < 0.96 else "restore"
    line = [name, *some_options(chance, name, 0.25)] if name == "restore" else [name]
    line.append(str(history))
    if name in ("show", "witness", "restore") and (name != "show" or chance.random() < 0.6):
        line.append(chance.choice(["latest", "latest", "-1", "-2", "traced-1", "bank-00001", chance.choice(ODD)]))
    if name == "restore":
        return [*line, PROGRAM]
    if name == "witness" and chance.random() < 0.8:
        line += ["--module", "teller.py"]
    return line + some_options(chance, name, 0.25)


def odd_line(chance: Random) -> list[str]:
    """A command with odd arguments and options that does not get as far as its work, or has little of it."""
    name = chance.choice(sorted({*OPTIONS} - APART))
    positional = [chance.choice(ODD[:2] + ODD[10:]) for _ in range(chance.choice([0, 1, 1, 2]))]
    if name in ("run", "snapshot", "diagnose", "synth"):  # they would begin to work
        return [name, *some_options(chance, name, 0.9), "--limit", chance.choice(ODD), *positional]
    return [name, *positional, *some_options(chance, name, 0.6)]


def some_options(chance: Random, name: str, likely: float) -> list[str]:
    line = []
    for option in OPTIONS[name]:
        if chance.random() < likely:
            value = (
                chance.choice(FITTING[option]) if option in FITTING and chance.random() < 0.7 else chance.choice(ODD)
            )
            line += [option] if option in FLAGS else [option, value]
    return line


# ---- one case -----------------------------------------------------------------------------------------------------------


def try_seed(seed: int, folder: Path) -> Case:
    """Make what the seed says below a prepared folder, run it there, and look at all that must hold."""
    case = Case(seed)
    chance = Random(seed)
    place = folder / "work" / "history"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "honest", place)
    case.damages = damages.damage(chance, place, folder / "outside")
    before = crafted.fingerprint(folder / "outside")
    _forget_peak()
    least = _peak()
    run(case, command_line(chance, place), folder)
    if chance.random() < 0.1:
        write(case, place)
    if run(case, ["verify", str(place)], folder) == 0:
        check_readable(case, place, folder)
    if crafted.fingerprint(folder / "outside") != before:
        case.problems.append("something outside of the history was touched")
    if (taken := _peak() - least) > MOST_BYTES:
        case.problems.append(f"it took {taken:,} bytes")
    return case


def run(case: Case, line: list[str], folder: Path) -> int:
    """Run one command, and note what it may not do."""
    out, err = io.StringIO(), io.StringIO()
    if line[0] in APART:
        done = as_process(
            [text.replace("\0", "") for text in line], folder / "work", RAY_SNAPSHOT_KEY=crafted.KEY.decode()
        )
        code, said, wrong = done.returncode, done.stdout, done.stderr
    else:
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.main(line)
        said, wrong = out.getvalue(), err.getvalue()
    shown = [text if len(text) < 100 else f"{text[:40]}... ({len(text)})" for text in line]
    case.said.append(f"{shown} -> {code} {wrong[:300].strip()!a}")
    case.problems += [f"{shown[0]}: {problem}" for problem in problems(line, code, said, wrong)]
    return code


def problems(line: list[str], code: int, out: str, err: str) -> Iterator[str]:
    """What a command may never do, whatever it is given."""
    if code not in CODES.get(line[0], (0, 2)):
        yield f"exit code {code}: {err[-600:]!a}"
    if "Traceback" in out + err:
        yield f"a traceback: {err[-2_000:]}"
    if hidden := HIDDEN & {*out, *err}:
        yield f"control characters {sorted(hidden)!a}"
    if code == 2 and (err.count("\n") != 1 or not err.startswith("ray-snapshot: ")):
        yield f"an error is not one line: {err[-600:]!a}"
    if line[0] == "verify" and code == 1 and "all passed" in out:
        yield "it says all passed, and exits with 1"


def write(case: Case, place: Path) -> None:
    """What `ray-snapshot run --history` does to a history that is there."""
    case.said.append("a snapshot is added")
    try:
        with HistoryWriter(place) as writer:
            writer.add(crafted.snapshot(7))
    except RaySnapshotError as error:
        case.said.append(str(error))
    except Exception as error:
        case.problems.append(f"the writer raises {error!r}")


def check_readable(case: Case, place: Path, folder: Path) -> None:
    """What passed `verify` can be read by every other command, and loaded."""
    opened = History(place)
    for name in ("list", "verdicts"):
        if run(case, [name, str(place)], folder):
            case.problems.append(f"verify passes, and {name} cannot read it")
    try:
        rows = opened.snapshots()
        loaded = opened.load_many(row.snapshot_id for row in rows)
        for snapshot_id in [snapshot.snapshot_id for snapshot in loaded]:
            if run(case, ["show", str(place), "--", snapshot_id], folder):
                case.problems.append(f"verify passes, and show cannot read {snapshot_id!a}")
        opened.classes()
        for run_id in {row.run_id for row in rows}:
            opened.actions(run_id)
    except RaySnapshotError as error:
        case.problems.append(f"verify passes, and {error}")


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no peak is known")


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


# ---- many cases, in a process of their own -----------------------------------------------------------------------------


def work(folder: Path) -> None:
    """Try the seeds that come on stdin; what came of each is a line on stdout. Runs in a child of `results`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a native library prints is no answer
    os.chdir(folder / "work")
    cli.make_app = cache(cli.make_app)
    typer.main.get_command = cache(typer.main.get_command)  # to make it is half the time of a case
    for line in sys.stdin:
        faulthandler.dump_traceback_later(SECONDS - 5)
        case = try_seed(int(line), folder)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(vars(case)), file=answers, flush=True)


def results(seeds: Iterable[int], template: Path) -> Iterator[Case]:
    """What came of each seed: a process tries many; it is replaced if it ends, hangs, or has seen a problem."""
    child: Child | None = None
    try:
        for seed in seeds:
            child = child or Child(template)
            case = child.ask(seed)
            yield case
            if case.problems:
                child.close()
                child = None
    finally:
        if child is not None:
            child.close()


class Child:
    """A process that tries seeds, in a folder of its own."""

    def __init__(self, template: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        shutil.copytree(template, self.folder, dirs_exist_ok=True)
        environment = {
            "HOME": str(self.folder / "work"),
            checkpoints.KEY_VARIABLE: crafted.KEY.decode(),
            "PATH": "/usr/bin:/bin",
        }
        self.log = (self.folder / "log").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True,
        )  # fmt: skip

    def ask(self, seed: int) -> Case:
        """Try one seed; an end of the process or a hang is a problem, too."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(seed, file=self.process.stdin, flush=True)
        answered, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if answered else ""
        if line:
            return Case(**json.loads(line))
        what = "its process ended" if answered else f"it did not end in {SECONDS} s"
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 3_000))
        return Case(seed, problems=[f"{what}: {self.log.read().decode(errors='replace')}"])

    def close(self) -> None:
        """Stop it, and remove its folder."""
        with suppress(OSError):
            self.process.kill()
        self.process.communicate()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Replay seeds."""
    if arguments[0] == "--work":
        work(Path(arguments[1]))
        return 0
    seeds: list[int] = []
    for text in arguments:
        first, _, last = text.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in results(seeds, prepared(Path(folder))):
            if case.problems or len(seeds) < 20:
                print(case, flush=True)
            failed += bool(case.problems)
            print(f"\r{case.seed}", end="", file=sys.stderr)
    print(f"{len(seeds)} seeds, {failed} with a problem")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
