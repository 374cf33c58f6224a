"""No traceback and no terminal escape, ever: odd arguments, odd streams, odd text, and faults of our own."""

import io
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from clean import ran

from ray_snapshot import Snapshot, Verdict, cli
from ray_snapshot.history import HistoryWriter
from ray_snapshot.streams import Shown, shown
from ray_snapshot.views.tables import one_line

COMMAND = shlex.quote(str(Path(sys.executable).with_name("ray-snapshot")))
EVIL = "a\x1b[2J\x9b31m\u202e\u2066\x07\r\x00z"
FORBIDDEN = {chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2066)} - {"\n", "\t"}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history whose every text would move a terminal's cursor."""
    path = tmp_path_factory.mktemp("odd") / "h"
    names = [f"{EVIL}{number}" for number in range(2)]
    taken = Snapshot.from_rows(
        machines=[
            {"machine": name, "class_name": EVIL, "host": EVIL, "state": {EVIL: EVIL}, "status": "blocked",
             "waits_for": [names[0]]}
            for name in names
        ],
        messages=[{"source": names[0], "target": names[1], "method": EVIL, "args": [EVIL]}],
        snapshot_id="odd-1", system="odd", run_id=EVIL, abort_reason=EVIL, obstacles=[EVIL], initiators=[EVIL],
        coverage={"uncovered": [EVIL]},
    )  # fmt: skip
    with HistoryWriter(path) as writer:
        writer.add(taken)
        writer.add_verdicts(
            [Verdict(detector=EVIL, snapshot_id="odd-1", holds=True, sentence=EVIL, evidence={"x": EVIL}, alarm=True)]
        )
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert not FORBIDDEN & {*out, *err}
    return code, out, err


def in_shell(line: str, folder: Path) -> tuple[int, str]:
    """(exit code, stderr) of a line of the shell, with an environment made from nothing."""
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = ran("bash", "-c", line, env=environment, cwd=folder, seconds=60)
    return done.returncode, done.stderr


@pytest.mark.contract
@pytest.mark.parametrize("command", ["list", "show", "report --markdown", "verdicts", "verify", "compact", "vacuum"])
def test_what_a_history_says_cannot_move_the_terminal(
    command: str, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, *command.split(), str(history))[0] in (0, 1)


def test_what_would_move_it_is_shown_escaped(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert r"a\x1b[2J\x9b31m\u202e\u2066\x07" in said(capsys, "verdicts", str(history))[1]
    assert shown("é\x1b\u202e\ud800") == r"é\x1b\u202e\ud800"
    assert one_line("a\nb\x1b") == r"a b\x1b"


@pytest.mark.contract
@pytest.mark.parametrize(
    "arguments",
    [["list", "/no/\x1b[31mwhere"], ["show", "{history}", "x\x1b]0;title\x07"], ["list", "{history}", "--run", "\x9b\u202e"],
     ["verdicts", "{history}", "--detector", "\u202ex"], ["analyze", "{history}", "\x1bjob"], ["\x1b[2J"]],
)  # fmt: skip
def test_an_error_line_cannot_move_it_either(
    arguments: list[str], history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, *(item.format(history=history) for item in arguments))
    assert (code, err.count("\n")) == (2, 1)


LONG = "a" * 5_000


@pytest.mark.contract
@pytest.mark.parametrize(
    "arguments",
    [
        ["list", LONG],
        ["list", "b/" * 2_500],
        ["list", "nul\0"],
        ["list", "{history}", "--system", "nul\0"],
        ["list", "~nobody-at-all/h"],
        ["witness", LONG, "latest"],
        ["analyze", LONG, "cost"],
        ["restore", LONG, "latest", "x.py"],
        ["run", LONG],
        ["run", "--every", "1e400", "x.py"],
        ["run", "--every", "1e300", "x.py"],
        ["run", "--every", "nan", "x.py"],
        ["snapshot", "x", "--timeout", "inf"],
        ["synth", "--machines", "16", "--snapshots", "2", "--out", LONG],
        ["compact", "{history}", "--keep", "99999999999d"],
        ["compact", "{history}", "--keep", "1e400d"],
        ["vacuum", "{history}", "--keep-hours", "99999999999999999999"],
        ["show", "{history}", "--", "-99999999999999999999"],
        ["simulate", "--topology", LONG, "--events", LONG],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_odd_arguments_are_one_line_and_exit_code_2(
    arguments: list[str],
    history: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = said(capsys, *(item.format(history=history) for item in arguments))
    assert (code, err.count("\n")) == (2, 1), err


@pytest.mark.contract
def test_retention_longer_than_the_calendar_removes_nothing(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "vacuum", str(history), "--keep", "9999999d", "--dry-run")
    assert (code, out.startswith("0 snapshots would be removed")) == (0, True)


@pytest.mark.contract
@pytest.mark.parametrize(
    "command", ["list", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("verify", "list --json"))]
)
@pytest.mark.parametrize(
    ("where", "code", "line"),
    [
        ("> /dev/full", 2, "ray-snapshot: error: standard output cannot be written: No space left on device\n"),
        (">&-", 2, "ray-snapshot: error: standard output cannot be written: Bad file descriptor\n"),
        ("2>&-", 0, ""),
        ("> /dev/full 2> /dev/full", 2, ""),
        ("<&- >&- 2>&-", 2, ""),
    ],
)
def test_a_stream_that_is_closed_full_or_gone_ends_it_quietly(
    command: str, where: str, code: int, line: str, history: Path
) -> None:
    name, *options = command.split()
    given = f"{COMMAND} {name} {shlex.quote(str(history))} {' '.join(options)} {where}"
    assert in_shell(given, history.parent) == (code, line)


@pytest.mark.contract
def test_a_program_that_is_run_gets_its_streams_as_python_made_them(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import sys; print(type(sys.stdout).__name__, sys.stdout.errors, '\\x1b[31m', file=sys.stderr)"
    )
    assert in_shell(f"{COMMAND} run --quiet app.py", tmp_path) == in_shell(
        f"{shlex.quote(sys.executable)} app.py", tmp_path
    )
    assert in_shell(f"{COMMAND} run app.py >&-", tmp_path)[0] == 1  # as `python app.py` would: sys.stdout is None


def test_a_fault_of_ours_is_one_line_that_says_so_and_has_a_code_of_its_own(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("broken\x1b\nhere")

    monkeypatch.setattr("ray_snapshot.history.History.snapshot_table", fail)
    code, _, err = said(capsys, "list", str(history))
    assert (code, err.count("\n")) == (cli.OURS, 1)
    assert r"a fault of ray-snapshot: ZeroDivisionError: broken\x1b here; please report it" in err
    monkeypatch.setenv(cli.DEBUG, "1")
    assert cli.main(["list", str(history)]) == cli.OURS
    assert "Traceback" in capsys.readouterr().err


def test_a_stream_that_a_library_has_kept_passes_everything_once_it_is_given_back() -> None:
    kept = Shown(out := io.StringIO())
    kept.write("\x1b")
    kept.restored()
    kept.write("\x1b")
    assert out.getvalue() == "\\x1b\x1b"


def test_the_streams_are_given_back(capsys: pytest.CaptureFixture[str], history: Path) -> None:
    cli.main(["list", str(history)])
    assert not isinstance(sys.stdout, Shown)
    assert not isinstance(sys.stderr, Shown)
