"""A seed makes a hostile history and a command line; whatever they are, the command must keep what `problems` lists.

`python tests/hostile/fuzzing.py SEED ...` (or `FIRST-LAST`) replays seeds, and says what each of them was; with `--job` in
front, those of Spark jobs.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

import child
import crafted
import damages
import pyarrow as pa
from hostile_commands import PROGRAM, as_process

from ray_snapshot import Snapshot
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import ACTIONS
from ray_snapshot.spark_jobs import JOBS

HIDDEN = {chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2066)} - {"\n", "\t"}
CODES = dict.fromkeys(("verify", "witness", "simulate", "analyze", "since"), (0, 1, 2))
QUESTIONS = {"conservation", "since", "diff", "sql"}
READING = {"list", "show", "verdicts", "verify", "compact", "vacuum", "witness", "report", *QUESTIONS}
SECONDS = 300
"""A case that takes longer hangs: one takes half a second, the start of Spark ten."""

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where thousands of small files come and go at no cost."""

APART = {"restore"}
"""Commands that change the process that they run in."""


@dataclass
class Case:
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
    "report": ("--system", "--out", "--markdown"),
    "conservation": ("--system", "--run", "--detector", "--limit", "--json"),
    "since": ("--system", "--run", "--detector", "--limit", "--json"),
    "diff": ("--system", "--run", "--machine", "--field", "--limit", "--json"),
    "sql": ("--limit", "--timeout", "--json"),
    "witness": ("--from", "--svg", "--json", "--module"),
    "restore": ("--hosts",),
    "analyze": ("--from", "--top", "--between", "--every"),
    "simulate": ("--topology", "--events", "--schedule", "--seed", "--protocol", "--snapshot", "--json"),
    "synth": ("--machines", "--snapshots", "--anomalies", "--seed", "--every", "--system"),
    "run": ("--every", "--detect", "--exit-on", "--name"),
    "demo": ("--out", "--no-spark"),
    "systems": ("--address", "--json"),
    "snapshot": ("--address", "--timeout"),
    "diagnose": ("--address", "--timeout"),
}
QUERIES = (
    "SELECT * FROM snapshots", "SELECT * FROM machines", "SELECT * FROM channels, messages", "SELECT * FROM verdicts",
    "SELECT * FROM actions, classes", "SELECT snapshot_id, count(*) FROM machines GROUP BY ALL",
    "SELECT json_extract_string(state, '$.balance') FROM machines JOIN snapshots USING (snapshot_id)",
    "SELECT min(started_at), max(completed_at), sum(sequence) FROM snapshots", "SELECT * FROM calls, waits", "SHOW TABLES",
    "COPY snapshots TO 'out'", "SELECT * FROM read_text('/etc/hostname')", "SELECT",
)  # fmt: skip
STARTING = {"run", "demo", "systems", "snapshot", "diagnose", "synth"}
"""Commands that would start Ray or look for it, or write a lot: they are given an option that they have not."""

JOB_OPTIONS: dict[str, Sequence[Sequence[str]]] = {
    "conservation": ([], ["--state", "$.balance"], ["--state", "$.balance", "--total", "1"]),
    "changes": ([], ["--between", "-2..-1"], ["--machine", "a", "--field", "balance"]),
    "possibly": (["--predicate", "deadlock"], ["--predicate", "termination", "--definitely"]),
}
"""What else a Spark job is asked."""
FLAGS = {"--json", "--markdown", "--alarms", "--dry-run", "--no-spark"}
FITTING: dict[str, Sequence[str]] = {
    "--system": ("bank", "traced"), "--run": ("run", "tr"), "--limit": ("0", "1"), "--detector": ("termination",),
    "--snapshot": ("latest", "-2"), "--keep": ("1d", "0s"), "--keep-every": ("1h",), "--keep-hours": ("0", "1"),
    "--from": ("-2",), "--svg": ("out.svg",), "--module": ("teller.py",),
    "--hosts": ("1",), "--machine": ("a", "t"), "--field": ("balance",), "--timeout": ("60",), "--out": ("out.html", "out.md"),
}  # fmt: skip


def command_line(chance: Random, history: Path) -> list[str]:
    """A command on the history, as a rule; or one with odd arguments alone."""
    if chance.random() < 0.12:
        return odd_line(chance)
    name = chance.choice(sorted(READING)) if chance.random() < 0.96 else "restore"
    line = [name, *some_options(chance, name, 0.25)] if name == "restore" else [name]
    line.append(str(history))
    if name in ("show", "report", "witness", "restore") and (name not in ("show", "report") or chance.random() < 0.6):
        line.append(chance.choice(["latest", "latest", "-1", "-2", "traced-1", "bank-00001", chance.choice(ODD)]))
    if name == "restore":
        return [*line, PROGRAM]
    if name == "sql":
        line.append(chance.choice(QUERIES) if chance.random() < 0.9 else chance.choice(ODD))
    if name == "diff" and chance.random() < 0.5:
        line += [chance.choice(["-2", "bank-00000", chance.choice(ODD)]), chance.choice(["latest", chance.choice(ODD)])]
    if name == "witness" and chance.random() < 0.8:
        line += ["--module", "teller.py"]
    return line + some_options(chance, name, 0.25)


def odd_line(chance: Random) -> list[str]:
    """A command with odd arguments and options that does not get as far as its work, or has little of it."""
    name = chance.choice(sorted({*OPTIONS} - APART))
    positional = [chance.choice(ODD[:2] + ODD[10:]) for _ in range(chance.choice([0, 1, 1, 2]))]
    if name in STARTING:
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
    return _tried(Case(seed), folder, _some_command)


def try_jobs(seed: int, folder: Path) -> Case:
    """The same for a Spark job; it may refuse a history that `verify` passes only if nothing is selected."""
    return _tried(Case(seed), folder, _some_job)


def _some_command(case: Case, chance: Random, place: Path, folder: Path) -> None:
    run(case, command_line(chance, place), folder)
    if chance.random() < 0.1:
        write(case, place)
    if run(case, ["verify", str(place)], folder) == 0:
        check_readable(case, chance, place, folder)


def _some_job(case: Case, chance: Random, place: Path, folder: Path) -> None:
    job = chance.choice(sorted(JOBS))
    line = ["analyze", str(place), job, *chance.choice(JOB_OPTIONS.get(job, ([],)))]
    line += ["--json"] if chance.random() < 0.3 else []
    if run(case, line, folder) == 2 and run(case, ["verify", str(place)], folder) == 0:
        case.problems.append(f"verify passes, and {job} cannot read it")


def _tried(case: Case, folder: Path, act: Callable[[Case, Random, Path, Path], None]) -> Case:
    chance = Random(case.seed)
    place = folder / "work" / "history"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "honest", place)
    case.damages = damages.damage(chance, place, folder / "outside")
    before = crafted.fingerprint(folder / "outside")
    least = child.forget_peak()
    act(case, chance, place, folder)
    if crafted.fingerprint(folder / "outside") != before:
        case.problems.append("something outside of the history was touched")
    if (taken := child.peak() - least) > child.MOST_BYTES:
        case.problems.append(f"it took {taken:,} bytes")
    return case


def run(case: Case, line: list[str], folder: Path) -> int:
    if line[0] in APART:
        done = as_process(
            [text.replace("\0", "") for text in line], folder / "work", RAY_SNAPSHOT_KEY=crafted.KEY.decode()
        )
        code, said, wrong = done.returncode, done.stdout, done.stderr
    else:
        code, said, wrong = child.said_by(line)
    shown = [text if len(text) < 100 else f"{text[:40]}... ({len(text)})" for text in line]
    case.said.append(f"{shown} -> {code} {wrong[:300].strip()!a}")
    case.problems += [f"{shown[0]}: {problem}" for problem in problems(line, code, said, wrong)]
    return code


NOTE = re.compile(r"^ray-snapshot: (?:going on from|\S+ was edited:) .*\n", re.MULTILINE)
"""What `restore` says before it begins."""


def problems(line: list[str], code: int, out: str, err: str) -> Iterator[str]:
    """What a command may never do, whatever it is given."""
    if code not in CODES.get(line[0], (0, 2)):
        yield f"exit code {code}: {err[-600:]!a}"
    if "Traceback" in out + err:
        yield f"a traceback: {err[-2_000:]}"
    if hidden := HIDDEN & {*out, *err}:
        yield f"control characters {sorted(hidden)!a}"
    if line[0] == "restore":
        err = NOTE.sub("", err)
    if code == 2 and (err.count("\n") != 1 or not err.startswith("ray-snapshot: ")):
        yield f"an error is not one line: {err[-600:]!a}"
    if "Warning: " in err:
        yield f"a warning: {err[-600:]!a}"
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


def check_readable(case: Case, chance: Random, place: Path, folder: Path) -> None:
    """What passed `verify` can be read by every other command, and loaded, a snapshot shown."""
    opened = History(place)
    for name in ("list", "verdicts", "since"):
        if run(case, [name, str(place)], folder) == 2:
            case.problems.append(f"verify passes, and {name} cannot read it")
    try:
        rows = opened.snapshots()
        loaded = opened.load_many(row.snapshot_id for row in rows)
        snapshot_id = chance.choice([snapshot.snapshot_id for snapshot in loaded] or ["latest"])
        if run(case, ["show", str(place), "--", snapshot_id], folder) and rows:
            case.problems.append(f"verify passes, and show cannot read {snapshot_id!a}")
        opened.classes()
        for run_id in {row.run_id for row in rows}:
            opened.actions(run_id)
    except RaySnapshotError as error:
        case.problems.append(f"verify passes, and {error}")


# ---- many cases, in a process of their own -----------------------------------------------------------------------------


def work(folder: Path) -> None:
    """Try the seeds that are asked for. Runs in a child of `results`."""
    os.chdir(folder / "work")
    child.serve(lambda asked: vars((_try_job if asked["is_job"] else try_seed)(asked["seed"], folder)), SECONDS)


def _try_job(seed: int, folder: Path) -> Case:
    """In the Spark of this process, which generates no code: that would be most of the time."""
    from ray_snapshot.spark_jobs.session import spark_session

    session = spark_session("local[2]", brief=True)
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return try_jobs(seed, folder)


def results(seeds: Iterable[int], template: Path, *, is_job: bool = False) -> Iterator[Case]:
    """What came of each seed: a process tries many; it is replaced if it ends, hangs, or has seen a problem."""
    seeds, is_over = iter(seeds), False
    while not is_over:
        is_over = True
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY) as name, _worker(template, Path(name)) as one:
            for seed in seeds:
                try:
                    case = Case(**one.ask({"seed": seed, "is_job": is_job}))
                except child.EndedError as error:
                    case = Case(seed, problems=[str(error)])
                yield case
                if case.problems:
                    is_over = False
                    break


def replayed(cases: Iterable[Case], option: str = "") -> list[str]:
    """What is wrong with each case, with the command that replays it."""
    return [f"python tests/hostile/fuzzing.py {option}{case.seed}\n{case}" for case in cases if case.problems]


def _worker(template: Path, folder: Path) -> child.Child:
    shutil.copytree(template, folder, dirs_exist_ok=True)
    key = {"RAY_SNAPSHOT_KEY": crafted.KEY.decode()}
    return child.Child(__file__, "--work", str(folder), seconds=SECONDS, HOME=str(folder / "work"), **key)


def main(arguments: Sequence[str]) -> int:
    if arguments[0] == "--work":
        work(Path(arguments[1]))
        return 0
    seeds: list[int] = []
    is_job = arguments[0] == "--job"
    for text in arguments[is_job:]:
        first, _, last = text.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in results(seeds, prepared(Path(folder)), is_job=is_job):
            if case.problems or len(seeds) < 20:
                print(case, flush=True)
            failed += bool(case.problems)
            print(f"\r{case.seed}", end="", file=sys.stderr)
    print(f"{len(seeds)} seeds, {failed} with a problem")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
