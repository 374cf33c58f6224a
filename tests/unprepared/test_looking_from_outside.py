"""`ray-snapshot diagnose` without a name, on programs that nobody prepared: hangs are suspected, healthy ones are not.

One Ray, which asks for a token where Ray does so; the programs of `hanging.py` and `healthy_programs.py` run on it together.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from clean import clean_environment
from hanging import HANGS
from healthy_programs import HEALTHY
from started import started
from until import until

from ray_snapshot.tested import minor
from ray_snapshot.unprepared.evidence import spy

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
BOUND_S = 120.0
TOKEN = "0123456789abcdef" * 4
ASKS_FOR_TOKEN = minor(ray.__version__) >= (2, 52)

UNKNOWN = ("awaits_itself", "awaits_each_other", "nothing_comes", "a_lock", "through_threads")
"""Of these hangs nothing outside shows enough: coroutines, a queue that stays empty, locks and threads of Python's. Where
stacks cannot be read some of them look as a wait of Ray's does, and are suspected: they are hangs."""

DOUBTFUL = ("timers", "a_thread_works")
"""Of these healthy ones nothing outside shows enough either: coroutines, and a wait for a thread."""

FEW_HANGS = ("ring", "through_a_task", "an_actor_holds_what_its_task_needs", "awaits_itself")
FEW_HEALTHY = ("long_sleeps", "polling", "waits_with_a_timeout", "an_idle_inbox")

DEADLOCKED = 3

pytestmark = pytest.mark.ray


def ended(env: dict[str, str], *command: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=BOUND_S, check=False)


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a user types, beside a cluster that is none of ours."""

    home: Path
    address: str

    def environment(self, **more: str) -> dict[str, str]:
        return clean_environment(HOME=str(self.home), **more)

    def diagnose(self, *options: str) -> subprocess.CompletedProcess[str]:
        return ended(self.environment(), str(BIN / "ray-snapshot"), "diagnose", "--address", self.address, *options)

    def rows(self) -> dict[str, dict[str, Any]]:
        done = self.diagnose("--json")
        assert done.returncode in (0, 3, 4), done
        rows = {row["entrypoint"].rpartition(" ")[2]: row for row in map(json.loads, done.stdout.splitlines())}
        assert all(row["kind"] == "unprepared" for row in rows.values())
        return rows

    @contextmanager
    def running(self, script: str, names: Sequence[str]) -> Iterator[None]:
        """These programs, once each has said that it is ready."""
        env = self.environment(RAY_ADDRESS=self.address, RAY_AUTH_MODE="token" if ASKS_FOR_TOKEN else "disabled")
        with ExitStack() as stack:
            programs = [
                stack.enter_context(
                    started([sys.executable, HERE / script, *name.split()], env=env, seconds=600, takes_input=True)
                )
                for name in names
            ]
            for program in programs:
                assert program.stdout is not None
                assert any(line == "ready\n" for line in program.stdout), "Ray may print warnings of its own before"
            yield


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    home = tmp_path_factory.mktemp("home")
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(TOKEN)
    mode = {"RAY_AUTH_MODE": "token"} if ASKS_FOR_TOKEN else {}
    with a_cluster(clean_environment(HOME=str(home), **mode)) as address:
        yield Terminal(home, address)


@contextmanager
def a_cluster(env: dict[str, str]) -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="rs-", dir="/tmp")
    try:
        with started([sys.executable, HERE / "head.py", folder], env=env, seconds=3_000, takes_input=True) as head:
            assert head.stdout is not None
            assert head.stdin is not None
            yield head.stdout.readline().strip()
            head.stdin.close()
            head.wait(BOUND_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judged(terminal: Terminal, hangs: Sequence[str], others: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The rows as soon as each of these hangs is told as what it is, and all others have begun."""

    def are_told(rows: dict[str, dict[str, Any]]) -> bool:
        if not {*hangs, *others} <= rows.keys():
            return False
        verdicts = {name: ("suspected", "unknown") if name in UNKNOWN else ("suspected",) for name in hangs}
        return all(rows[name]["verdict"] in verdicts[name] for name in hangs)

    return until(terminal.rows, good=are_told, seconds=90.0)


def assert_healthy(rows: dict[str, dict[str, Any]], names: Sequence[str]) -> None:
    """None is suspected; nor in doubt, where stacks can be read."""
    has_stacks = any(row["stacks"] for row in rows.values())
    for name in names:
        if has_stacks and name not in DOUBTFUL:
            assert rows[name]["verdict"] == "none", rows[name]
        elif name != "waits_with_a_timeout":  # the same from outside, as the report then says
            assert rows[name]["verdict"] != "suspected", rows[name]


@pytest.mark.nightly  # eight programs at once, on processors that nothing else uses
def test_hangs_are_suspected_and_healthy_programs_beside_them_are_not(terminal: Terminal) -> None:
    with terminal.running("hanging.py", FEW_HANGS), terminal.running("healthy_programs.py", FEW_HEALTHY):
        rows = judged(terminal, FEW_HANGS, FEW_HEALTHY)
        assert_healthy(rows, FEW_HEALTHY)
        assert [(one["machine"], one["waits_for"]) for one in rows["ring"]["members"]] == [
            ("Person-0", ["Person-1 (Person.value)"]),
            ("Person-1", ["Person-0 (Person.value)"]),
        ]
        for name, code in (("ring", 3), ("awaits_itself", 4), ("an_idle_inbox", 0)):
            done = terminal.diagnose("--job", rows[name]["job"])
            assert (done.returncode, done.stderr) == (code, ""), done
            assert done.stdout.count("job ") == 1
        if rows["ring"]["stacks"]:
            shown = terminal.diagnose("--job", rows["ring"]["job"]).stdout
            assert "hanging.py:" in shown
            assert "ray/_private" not in shown
            assert "threading.py" not in shown


@pytest.mark.nightly
def test_where_stacks_are_refused_it_says_what_to_set(terminal: Terminal) -> None:
    """The right to look into processes is given up before; without it root is refused as any user is of another's."""
    giving_up = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
    with terminal.running("hanging.py", ["ring"]):
        command = [*giving_up, str(BIN / "ray-snapshot"), "diagnose", "--address", terminal.address]
        done = until(
            lambda: ended(terminal.environment(), *command), good=lambda one: one.returncode == DEADLOCKED, seconds=90.0
        )
    assert "Person-0" in done.stdout
    refused = "hint: py-spy may not read the processes: set the kernel's `kernel.yama.ptrace_scope` to 0"
    assert (refused if spy() else "hint: install py-spy where the cluster runs") in done.stdout
    assert "hanging.py:" not in done.stdout


@pytest.mark.nightly
def test_all_clusters_are_looked_at_and_a_watched_program_is_told_by_its_snapshot(terminal: Terminal) -> None:
    """One cluster has a watched and an unwatched program that hang, the other one that does not; a third refuses the token."""
    env = terminal.environment(RAY_AUTH_MODE="token" if ASKS_FOR_TOKEN else "disabled")
    stranger = {**env, "RAY_AUTH_TOKEN": "f" * 64} if ASKS_FOR_TOKEN else env
    watched = [str(BIN / "ray-snapshot"), "run", "--name", "known", HERE / "hanging.py", "ring"]
    with ExitStack() as stack:
        stack.enter_context(terminal.running("hanging.py", ["through_a_task"]))
        program = stack.enter_context(
            started(watched, env=env | {"RAY_ADDRESS": terminal.address}, seconds=600, takes_input=True)
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        other = stack.enter_context(a_cluster(env))
        healthy = replace(terminal, address=other)
        stack.enter_context(healthy.running("healthy_programs.py", ["an_idle_inbox"]))
        refusing = stack.enter_context(a_cluster(stranger))
        looked = partial(ended, terminal.environment(), str(BIN / "ray-snapshot"), "diagnose")
        done = until(looked, good=lambda one: "in known (" in one.stdout and ": suspected" in one.stdout)
    assert done.returncode == DEADLOCKED
    assert "deadlock in known (snapshot " in done.stdout, done.stdout + done.stderr
    assert "hanging.py ring" not in done.stdout, "that one is told by its snapshot, and not looked at from outside"
    first, _, second = done.stdout.partition(f"{other}:\n")
    assert f"{terminal.address}:\n" in first, "where something is suspected comes first"
    line = second.splitlines()[0]
    assert "healthy_programs.py an_idle_inbox" in line
    assert "nothing suspected" in line
    if ASKS_FOR_TOKEN:
        assert refusing in done.stderr
        assert "refuses the token" in done.stderr


@pytest.mark.nightly  # two nodes, and a task of ours on each
def test_processes_of_other_nodes_are_looked_at_by_a_task_there(tmp_path: Path) -> None:
    mode = {"RAY_AUTH_MODE": "token"} if ASKS_FOR_TOKEN else {}
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(TOKEN)
    env = clean_environment(HOME=str(tmp_path), **mode)
    nodes = [sys.executable, HERE.parent / "instrument" / "two_nodes.py", tmp_path]
    with started(nodes, env=env, seconds=600, takes_input=True) as cluster:
        assert cluster.stdout is not None
        assert cluster.stdin is not None
        address = cluster.stdout.readline().split()[0]
        program = [sys.executable, HERE.parent / "apps" / "deadlocks.py", "on_nodes", "first", "second"]
        with started(program, env=env | {"RAY_ADDRESS": address}, seconds=600, takes_input=True) as app:
            assert app.stdout is not None
            assert [app.stdout.readline() for _ in range(2)] == ["start\n", "2 nodes\n"]
            command = [sys.executable, HERE / "as_from_elsewhere.py", "diagnose", "--address", address]
            quiet = clean_environment(HOME=str(tmp_path))
            done = until(lambda: ended(quiet, *command), good=lambda one: one.returncode == DEADLOCKED, seconds=90.0)
        cluster.stdin.close()
        cluster.wait(BOUND_S)
    assert done.stderr == ""
    place = " (" if spy() else ""  # the line is known from the stack
    assert f"Account-0 in Account.transfer{place}" in done.stdout
    assert f"Account-1 in Account.both{place}" in done.stdout


def test_who_has_died_and_what_is_started_again_and_again_is_told_with_time_and_cause(terminal: Terminal) -> None:
    cause = r"killed by a signal, or by os._exit: Ray records no exit code"
    permit = rf"Embedder-\d died at \d\d:\d\d:\d\d \({cause}\)"
    killed = r"Embedder-\d died at \d\d:\d\d:\d\d \(killed by ray.kill\)"
    loop = r"Model-0 has been restarted \d+ times in \d+ s, each time inside Model\.load.*, killed by a signal,"

    def are_told(rows: dict[str, dict[str, Any]]) -> bool:
        found = rows.get("loop", {"verdict": "none", "died": [], "reasons": []})
        texts = (*found["died"], *found["reasons"])
        is_told = all(any(re.match(one, text) for text in texts) for one in (permit, killed, loop))
        return found["verdict"] in ("unknown", "suspected") and is_told

    with terminal.running(str(HERE.parent / "apps" / "before.py"), ["permit killed loop"]):
        rows = until(terminal.rows, good=are_told, seconds=90.0)
        shown = terminal.diagnose("--job", rows["loop"]["job"])
    before = shown.stdout[shown.stdout.index("\n  before that:\n") :]
    assert re.search(f"\n    {permit}\n", before), shown.stdout
    assert re.search(f"\n    {killed}\n", before), shown.stdout


def test_what_is_asked_wrongly_is_told_in_one_line(terminal: Terminal) -> None:
    for options, words in (
        (("--job", "99000000"), "no job 99000000 runs on the Ray cluster at"),
        (("app", "--job", "01000000"), "leave the name out"),
    ):
        done = terminal.diagnose(*options)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
        assert words in done.stderr


BATCH = 6
NAMES = {"hanging.py": [*HANGS], "healthy_programs.py": [*HEALTHY]}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "begin"), [(script, begin) for script, names in NAMES.items() for begin in range(0, len(names), BATCH)]
)
def test_each_program_of_the_list_is_told_as_what_it_is(script: str, begin: int, terminal: Terminal) -> None:
    names = NAMES[script][begin : begin + BATCH]
    with terminal.running(script, names):
        if script == "hanging.py":
            judged(terminal, names)
        else:
            for _ in range(2):
                assert_healthy(terminal.rows(), names)
