"""Alarms told to a command and to an address: what they get, and what is said when they cannot be told. No Ray."""

import threading
from pathlib import Path

import pytest
from posted import address
from until import until

from ray_snapshot import Verdict, alarms
from ray_snapshot.alarms import Alarm, Notifier, alarm_of, check_target
from ray_snapshot.errors import SettingError
from ray_snapshot.streams import Shown

ALARM = Alarm("begins", "bank", "run-1", "deadlock", "bank-00004", "a waits for b", "two\nlines", "/srv/history")


@pytest.fixture(autouse=True)
def _asks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib3.util.Retry.sleep", lambda *_: None)


def told(target: str, *found: Alarm) -> list[str]:
    """The lines about what could not be told."""
    lines: list[str] = []
    notifier = Notifier(target, lines.append)
    for one in found or (ALARM,):
        notifier.tell(one)
    notifier.close()
    return lines


def test_a_command_gets_the_report_on_its_input_and_the_facts_as_variables(tmp_path: Path) -> None:
    out = tmp_path / "told"
    facts = ("EVENT", "SYSTEM", "RUN_ID", "DETECTOR", "SNAPSHOT_ID", "SENTENCE", "HISTORY")
    names = " ".join(f'"$RAY_SNAPSHOT_{name}"' for name in facts)
    assert told(f"cat > {out}; printf '%s|' {names} >> {out}") == []
    assert out.read_text() == "two\nlines\nbegins|bank|run-1|deadlock|bank-00004|a waits for b|/srv/history|"


def test_names_of_strangers_are_no_part_of_a_command(tmp_path: Path) -> None:
    odd = Alarm("begins", "$(touch x)", "r", "`touch x`", "; touch x", "a\0b\x1b[31m" + "x" * 200_000, "-\0-")
    out = tmp_path / "told"
    assert told(f'cd {tmp_path}; echo "$RAY_SNAPSHOT_SYSTEM $RAY_SNAPSHOT_SENTENCE" > {out}', odd) == []
    assert out.read_text().startswith("$(touch x) a\\x00b\\x1b[31mxxx")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo first; echo no such room >&2; exit 3", "the command ended with 3: no such room"),
        ("no-such-command-here", "no-such-command-here: not found"),
        ("kill -9 $$", "the command ended by signal 9"),
    ],
)
def test_a_command_that_fails_is_told_of_and_the_next_alarm_comes(tmp_path: Path, command: str, words: str) -> None:
    lines = told(f"echo >> {tmp_path}/runs; {command}", ALARM, ALARM)
    assert len(lines) == 2
    assert all("the alarm of deadlock on bank-00004 was not told: " in line and words in line for line in lines), lines
    assert (tmp_path / "runs").read_text() == "\n\n"


def test_a_command_that_does_not_end_is_ended_with_all_that_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "TELLING_S", 1.0)
    lines: list[str] = []
    notifier = Notifier(f"(echo $$ > {tmp_path}/pid; exec sleep 1000) & wait", lines.append)
    notifier.tell(ALARM)
    notifier.close(60.0)
    assert ["has not ended within 1 s, and was ended" in line for line in lines] == [True]
    pid = int((tmp_path / "pid").read_text())
    until(lambda: is_gone(pid))


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_that_reads_nothing_holds_up_nobody() -> None:
    big = Alarm("begins", "s", "r", "d", "i", "s", "x" * 1_000_000)
    assert told("exit 0", big) == []


def test_an_address_gets_json(tmp_path: Path) -> None:
    with address() as posted:
        assert told(posted.address, ALARM, Alarm("ends", "s", "r", "d", "i", "over", "over")) == []
    assert posted.paths == ["/hook/a-secret"] * 2
    assert posted.bodies[0] == {
        "event": "begins",
        "system": "bank",
        "run_id": "run-1",
        "detector": "deadlock",
        "snapshot_id": "bank-00004",
        "sentence": "a waits for b",
        "report": "two\nlines",
        "history": "/srv/history",
    }
    assert (posted.bodies[1]["event"], posted.bodies[1]["history"]) == ("ends", None)


def test_an_address_that_cannot_now_is_asked_again() -> None:
    with address(503, 429) as posted:
        assert told(posted.address) == []
    assert len(posted.bodies) == 3


@pytest.mark.parametrize(
    ("codes", "tried"), [([500] * 9, 4), ([404], 1), ([302], 1)], ids=["never", "refused", "elsewhere"]
)
def test_an_address_that_does_not_take_it_is_named_without_its_secret(codes: list[int], tried: int) -> None:
    with address(*codes, location="http://127.0.0.1:1/other") as posted:
        (line,) = told(posted.address)
    assert len(posted.bodies) == tried
    assert f"it answered {codes[0]} " in line
    assert "a-secret" not in line


def test_an_address_that_is_not_there_is_named_without_its_secret() -> None:
    with address() as posted:
        gone = posted.address
    (line,) = told(gone)
    assert "Connection refused" in line
    assert "a-secret" not in line


def test_alarms_wait_for_a_slow_command_up_to_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(alarms, "MOST_WAITING", 2)
    lines: list[str] = []
    (tmp_path / "gate").touch()
    notifier = Notifier(f"while [ -e {tmp_path}/gate ]; do sleep 0.05; done; echo >> {tmp_path}/runs", lines.append)
    notifier.tell(ALARM)
    until(notifier._waiting.empty)
    for _ in range(4):
        notifier.tell(ALARM)
    assert ["2 alarms wait to be told, and further ones are not told" in line for line in lines] == [True]
    threading.Timer(0.5, (tmp_path / "gate").unlink).start()
    notifier.close()
    assert (tmp_path / "runs").read_text() == "\n" * 3
    assert "2 alarms were not told" in lines[-1]


def test_what_is_not_told_in_time_is_counted(tmp_path: Path) -> None:
    lines: list[str] = []
    notifier = Notifier("sleep 30", lines.append)
    for _ in range(3):
        notifier.tell(ALARM)
    until(lambda: notifier._waiting.qsize() == 2)
    notifier.close(0.2)
    assert ["3 alarms were not told within 0.2 s" in line for line in lines] == [True]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://host#SECRET", "https://host/..."),
        ("http://host\\SECRET", "http:///..."),
        ("https://u:SECRET/x@host", "https:///..."),
        ("https://u:SECRET?q@host", "https:///..."),
        ("https://SECRET@host:8443/SECRET", "https://host:8443/..."),
    ],
)
def test_of_an_address_the_host_is_named_and_no_more(address: str, shown: str) -> None:
    assert alarms.shown_target(address) == shown


def test_an_address_behind_a_blank_is_no_command() -> None:
    assert check_target("--on-alarm", " https://host/x ") == "https://host/x"


def test_an_answer_that_comes_byte_by_byte_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "TELLING_S", 0.3)
    held = threading.Event()
    monkeypatch.setattr(Notifier, "_sent", lambda *_: str(held.wait(60)))
    lines: list[str] = []
    notifier = Notifier("https://host/x", lines.append)
    notifier.tell(ALARM)
    notifier.close(60.0)
    held.set()
    assert ["it has not answered within 0.3 s" in line for line in lines] == [True]


def test_what_comes_after_the_end_is_said() -> None:
    lines: list[str] = []
    notifier = Notifier("exit 0", lines.append)
    notifier.close()
    notifier.tell(ALARM)
    assert ["came too late to be told" in line for line in lines] == [True]


class Gone:
    """A stream whose reader has left."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_stderr_that_is_gone_ends_no_telling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Shown(Gone()))  # type: ignore[arg-type]
    notifier = Notifier(f"echo >> {tmp_path}/runs; exit 1")
    for _ in range(2):
        notifier.tell(ALARM)
    notifier.close()
    assert (tmp_path / "runs").read_text() == "\n\n"


@pytest.mark.parametrize(
    "target", ["", "  ", "a\0b", "http://", "https:///x", "ftp://host/x", "http://host:99999/a-secret"]
)
def test_what_is_neither_a_command_nor_an_address_is_refused(target: str) -> None:
    with pytest.raises(SettingError, match="--on-alarm") as caught:
        check_target("--on-alarm", target)
    assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "target", ["mail -s hang me", "curl https://host/x -d @-", "https://host/x", "HTTP://[::1]:80"]
)
def test_commands_and_addresses_are_taken(target: str) -> None:
    assert check_target("--on-alarm", target) == target


def test_the_report_of_a_deadlock_has_its_places_and_that_of_another_alarm_its_sentence() -> None:
    members = [
        {"machine": "a", "class": "A", "method": "pay", "call_site": "b.py:4", "waits_for": ["b"], "mode": "all"}
    ]
    stuck = Verdict(detector="deadlock", holds=True, alarm=True, evidence={"members": members}, snapshot_id="x-1")
    found = alarm_of(stuck, "bank", "/h")
    assert found.event == "begins"
    assert "deadlock in bank (snapshot x-1)" in found.report
    assert "a in A.pay (b.py:4) waits for b" in found.report
    assert found.report.endswith("\n  more: ray-snapshot report /h x-1")
    lost = Verdict(detector="money", holds=False, alarm=True, sentence="10 are missing", snapshot_id="x-2")
    assert alarm_of(lost, "bank", None).report == "ray-snapshot: alarm of money in bank (snapshot x-2): 10 are missing"
    over = Verdict(detector="money", holds=True, sentence="all are there", snapshot_id="x-3")
    ended = alarm_of(over, "bank", None)
    assert (ended.event, ended.report) == (
        "ends",
        "ray-snapshot: no more alarm of money in bank (snapshot x-3): all are there",
    )
