"""Every command that takes a history takes the address of one; and what can go wrong with an address is one line."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment, ran
from histories import full_snapshot, snapshot, verdict
from limited import limit
from stored import Proxy, Store, copy, environment

from ray_snapshot.addresses import StorePath, parse
from ray_snapshot.errors import HistoryNotFoundError
from ray_snapshot.history import History, HistoryWriter, leases, objects, stores, tables
from ray_snapshot.history.mirror import Mirror


def fill(address: str | Path) -> None:
    with HistoryWriter(address) as writer:
        for number in range(3):
            writer.add(snapshot(number, run_id="run-a"))
        writer.add(snapshot(0, system="ring", run_id="run-b"))
        writer.add(full_snapshot())
        writer.add_verdicts([verdict(f"bank-{number:05d}", alarm=number == 2) for number in range(3)])


@pytest.fixture(scope="module")
def pristine(store: Store) -> str:
    return store.filled(fill)


@pytest.fixture
def address(pristine: str, bucket: str) -> str:
    return copy(pristine, f"{bucket}/a/history")


@pytest.fixture
def local(pristine: str, bucket: str, tmp_path: Path) -> str:
    Mirror(parse(pristine, HistoryNotFoundError), tmp_path / "history").refresh()
    return str(tmp_path / "history")


PROGRAM = str(Path(sys.executable).with_name("ray-snapshot"))

READING = [
    ["list", "HISTORY", "--json"],
    ["show", "HISTORY", "full-1", "--json"],
    ["verdicts", "HISTORY", "--json"],
    ["verify", "HISTORY", "--json"],
    ["diff", "HISTORY", "bank-00000", "bank-00001", "--json"],
    ["sql", "HISTORY", "SELECT machine, state FROM machines ORDER BY snapshot_id, machine", "--json"],
    ["report", "HISTORY", "bank-00002", "--out", "OUT/report.md"],
    ["compact", "HISTORY", "--keep", "1d", "--dry-run", "--json"],
    ["vacuum", "HISTORY", "--dry-run", "--json"],
    ["conservation", "HISTORY", "--json"],
    ["since", "HISTORY", "--json"],
]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("line", READING, ids=lambda line: line[0])
def test_commands_say_of_a_store_what_they_say_of_a_folder(
    pristine: str, bucket: str, local: str, run: Any, tmp_path: Path, line: list[str]
) -> None:
    answers = []
    for place, history in (("local", local), ("stored", pristine)):
        (out := tmp_path / place).mkdir()
        code, said, errors = run(*(part.replace("HISTORY", history).replace("OUT", str(out)) for part in line))
        text = "\n".join(said) + "".join(file.read_text() for file in sorted(out.iterdir()))
        answers.append((code, text.replace(history, "HISTORY").replace(str(out), "OUT"), errors))
    assert answers[0] == answers[1]
    assert answers[0][0] in (0, 1), answers[0]
    assert len(answers[0][1]) > 20


def test_compact_retain_and_vacuum_rewrite_a_history_in_a_store(address: str, run: Any) -> None:
    code, _, errors = run("compact", address, "--keep-every", "1d")
    assert (code, errors) == (0, [])
    assert {row.snapshot_id for row in History(address).snapshots()} == {
        "bank-00000",
        "bank-00001",
        "ring-00000",
        "full-1",
    }
    code, _, errors = run("vacuum", address, "--keep-hours", "0", "--json")
    assert (code, errors) == (0, [])
    assert run("verify", address)[0] == 0


@pytest.mark.nightly
def test_synth_writes_into_a_store_and_adds_to_it(bucket: str, run: Any) -> None:
    address = f"{bucket}/made-up"
    options = ("--machines", "16", "--snapshots", "2", "--out", address)
    for count in (2, 4):
        code, _, errors = run("synth", *options, "--seed", str(count))
        assert (code, errors) == (0, [])
        assert len(History(address).snapshots()) == count
    place = StorePath(bucket, "made-up/planted.json")
    assert isinstance(json.loads(objects.read_bytes(place, place, 10**6)), list)


def test_doctor_looks_at_a_store(address: str, bucket: str, run: Any) -> None:
    def said(history: str) -> str:
        return next(line for line in run("doctor", history)[1] if " history " in f" {line} ")

    assert f"{address} can be written to; a history" in said(address)
    assert f"{bucket}/none can be written to; no history yet" in said(f"{bucket}/none")
    assert "there is no bucket s3://none" in said("s3://none/x")


def test_pages_show_a_history_in_a_store(address: str) -> None:
    from ray_snapshot.web import reading
    from ray_snapshot.web.served import Served

    served = Served()
    place = served.add(address)
    assert place.key == "history"
    before = reading.commits(place, "snapshots")
    assert reading.snapshot_rows(served, place).num_rows == 5
    with HistoryWriter(address) as writer:
        writer.add(snapshot(9))
    assert reading.commits(place, "snapshots") != before
    assert reading.snapshot_rows(served, place).num_rows == 6
    assert reading.resolved(served, place, "latest") == "bank-00009"
    assert served.add(address) is place


# ---- what can go wrong ------------------------------------------------------------------------------------------------------


@pytest.fixture
def deaf() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield f"http://127.0.0.1:{found.getsockname()[1]}"


@pytest.mark.contract
def test_each_mistake_is_one_line_that_names_the_place_and_the_remedy(
    store: Store, bucket: str, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = environment(store.address)
    closed = {**good, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    secure = {name: value for name, value in good.items() if name != "AWS_ALLOW_HTTP"}
    script = tmp_path / "app.py"
    script.write_text("print('it ran')\n")
    for command, env, said in (
        (["list", "s3://no-such-bucket/h"], good, "no history at s3://no-such-bucket/h: there is no bucket"),
        (["list", f"{bucket}/h"], good, f"no history at {bucket}/h: there is nothing at this address that is one"),
        (["list", "s4://x/h"], good, "s4:// is the address of no store that is known here: give a folder, or"),
        (["list", "s3://me:s3cr3t@x/h"], good, "s3://...@x/h: an address holds no user and no password"),
        (
            ["list", f"{bucket}/h"],
            closed,
            "the store cannot be reached at 127.0.0.1:9: look at the network, and at AWS_",
        ),
        (["list", f"{bucket}/h"], secure, "its address is http://, without encryption: set AWS_ALLOW_HTTP=true if"),
        (["run", "--history", "s3://no-such-bucket/h", str(script)], good, "a history cannot be kept at s3://no-such-"),
        (
            ["synth", "--machines", "16", "--snapshots", "1", "--out", "s3://no-such-bucket/h"],
            good,
            "there is no bucket",
        ),
    ):
        with monkeypatch.context() as patch:
            for name in good:
                patch.delenv(name)
            for name, value in env.items():
                patch.setenv(name, value)
            code, _, (line,) = run(*command)
        assert (code, said in line) == (2, True), line
        assert line.startswith("ray-snapshot: error: ")
        assert "s3cr3t" not in line
        assert "secret-of-tests" not in line
        assert "AKIDOFTESTS" not in line


def test_a_process_with_nothing_but_the_store_in_its_environment_says_the_same(store: Store, pristine: str) -> None:
    for address, code, said in (
        (pristine, 0, ""),
        ("s3://no-such-bucket/h", 2, "make it first, or give another address"),
    ):
        done = ran(PROGRAM, "verify", address, env=clean_environment(**environment(store.address)))
        assert (done.returncode, len(done.stderr.splitlines())) == (code, code // 2), done.stderr
        assert said in done.stderr


def test_credentials_that_the_store_refuses_are_told_and_not_shown(
    bucket: str, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    """An answer as stores give it: with the key, and with what was signed."""
    body = (
        b"<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message><AWSAccessKeyId>AKIDOFTESTS</AWSAccessKeyId>"
        b"<StringToSign>secret-of-tests</StringToSign></Error>"
    )
    proxy = Proxy("http://127.0.0.1:9")
    monkeypatch.setattr(proxy, "_handle", lambda asked, address: answer(asked, body))
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    code, _, (line,) = run("list", f"{bucket}/h")
    proxy.close()
    assert code == 2
    assert (
        "the store refuses what the environment gives as credentials (SignatureDoesNotMatch): set AWS_ACCESS_KEY_ID"
        in line
    )
    assert "AKIDOFTESTS" not in line


def answer(asked: Any, body: bytes) -> None:
    asked.send_response(403)
    asked.send_header("Content-Length", str(len(body)))
    asked.end_headers()
    asked.wfile.write(body)


@pytest.mark.contract
def test_without_credentials_a_line_says_which_to_set(
    bucket: str, store: Store, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    """The library asks the computer's own service for some then; here that is a port at which nobody answers."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    code, _, (line,) = run("list", f"{bucket}/h")
    assert code == 2
    assert "no history at" in line
    assert "AWS_ACCESS_KEY_ID" in line or "cannot be reached" in line


def test_a_store_that_does_not_answer_ends_in_bounded_time(
    bucket: str, deaf: str, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    limit(monkeypatch, store_request_s=1)
    limit(monkeypatch, store_retries=0)
    stores._client.cache_clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", deaf)
    ended = threading.Event()
    watch = threading.Timer(30, lambda: ended.is_set() or pytest.fail("it hangs"))
    watch.start()
    code, _, (line,) = run("list", f"{bucket}/h")
    ended.set()
    watch.cancel()
    stores._client.cache_clear()
    assert code == 2
    assert "the store cannot be reached at 127.0.0.1:" in line


# ---- a stranger's objects ---------------------------------------------------------------------------------------------------


def log_of(address: str, table: str) -> StorePath:
    bucket, _, key = address.removeprefix("s3://").partition("/")
    return StorePath(f"s3://{bucket}", f"{key}/{table}/_delta_log")


def rewritten(address: str, table: str, change: Any) -> None:
    for path, _ in objects.below(log_of(address, table), log_of(address, table)):
        actions = [json.loads(line) for line in objects.read_bytes(path, path, 10**7).splitlines()]
        for action in actions:
            change(action)
        objects.put(path, "\n".join(map(json.dumps, actions)).encode())


@pytest.mark.by_day(1)
@pytest.mark.parametrize("trick", ["../../other/x.parquet", "s3://victim/x.parquet", "..%2F..%2Fx.parquet"])
def test_a_log_cannot_name_an_object_outside_of_its_table(address: str, bucket: str, run: Any, trick: str) -> None:
    victim = StorePath(bucket, "a/other/x.parquet")
    objects.put(victim, b"not yours")

    def change(action: dict[str, Any]) -> None:
        for kind in ("add", "remove"):
            if kind in action:
                action[kind]["path"] = trick

    rewritten(address, "machines", change)
    code, _, (line,) = run("show", address, "bank-00000")
    assert code == 2
    assert "table machines" in line
    assert run("vacuum", address, "--keep-hours", "0")[0] in (0, 2)
    assert objects.exists(victim, victim)


def test_objects_that_exhaust_memory_or_are_none_of_a_history_are_refused(address: str, run: Any) -> None:
    log = log_of(address, "channels")
    objects.put(log / f"{9:020}.json", b" " * 1_000)
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, log_bytes=900)
        code, _, (line,) = run("show", address, "bank-00000")
    assert (code, "more than any commit of a history" in line) == (2, True)
    objects.put(log_of(address, "snapshots") / f"{0:020}.json", b"\x00\xff")
    code, _, (line,) = run("list", address)
    assert (code, address in line) == (2, True)


def test_a_size_in_the_log_is_not_believed(address: str, run: Any) -> None:
    def change(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["size"] = 10**15

    rewritten(address, "machines", change)
    assert max(tables.check_files(History(address).stored.data_files("machines"))) < 10**6
    assert run("show", address, "bank-00000")[0] == 0


def test_a_file_that_is_gone_is_told(address: str, run: Any) -> None:
    for file in History(address).files("machines"):
        place = StorePath(file[: file.index("/", 5)], file[file.index("/", 5) + 1 :])
        objects.unlink(place, place)
    code, _, (line,) = run("show", address, "bank-00000")
    assert code == 2
    assert "table machines cannot be read" in line
    assert "put it back from a copy" in line


def test_a_prefix_of_something_else_is_not_written_into(bucket: str) -> None:
    place = StorePath(bucket, "h/machines/letter.txt")
    objects.put(place, b"dear")
    with pytest.raises(Exception, match="exists and is no Delta table: name another"):
        HistoryWriter(f"{bucket}/h")
    assert leases.owners_there(StorePath(bucket, "h")) == set()
