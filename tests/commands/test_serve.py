"""`ray-snapshot serve` as a person starts it: the address it prints, who is let in, and how it ends."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from clean import clean_environment, ran
from incidents import incident
from started import started

pytestmark = pytest.mark.contract

BIN = Path(sys.executable).parent
PROGRAM = BIN / "ray-snapshot"


@contextmanager
def serving(*options: str | Path, home: Path, **more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    env = clean_environment(HOME=str(home), **more)
    with started([PROGRAM, "serve", *map(str, options)], env=env, seconds=120) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ray-snapshot: open http://127.0.0.1:"), (line, process.stderr and process.stderr.read())
        yield process, line.split()[-1]


def get(address: str, path: str, token: str | None) -> tuple[int, str]:
    parts = urlsplit(address)
    request = urllib.request.Request(f"{parts.scheme}://{parts.netloc}{path}")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_prints_the_address_to_open_shows_a_history_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with serving(incident(tmp_path / "h"), "--port", "0", home=tmp_path) as (process, address):
        token = address.partition("token=")[2]
        assert len(token) >= 32
        assert get(address, "/", None)[0] == 401
        assert get(address, "/", token[:-1])[0] == 401
        status, text = get(address, "/api/v1/h/h/s/latest", token)
        assert (status, json.loads(text)["system"]) == (200, "bank")
        assert "Alarm: deadlock in bank" in get(address, "/", token)[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert get_or_refused(address) == "refused"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_ended_by_other_signals_and_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    with serving(incident(tmp_path / "h"), "--port", "0", home=tmp_path) as (process, address):
        assert get(address, "/", None)[0] == 401
        process.send_signal(number)
        assert process.wait(60) == 128 + number, "its own way out, and not the signal's"


def get_or_refused(address: str) -> str:
    try:
        get(address, "/", None)
    except urllib.error.URLError:
        return "refused"
    return "answered"


@pytest.mark.nightly
def test_a_token_can_be_set_and_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    path = incident(tmp_path / "h")
    with serving(path, home=tmp_path, RAY_SNAPSHOT_TOKEN="a-token-of-my-own") as (_, address):
        assert address.endswith("/?token=a-token-of-my-own")
        assert get(address, "/", "a-token-of-my-own")[0] == 200
        port = str(urlsplit(address).port)
        done = run(tmp_path, str(path), "--port", port)
        assert done.returncode == 2
        assert f"127.0.0.1:{port} cannot be listened to: Address already in use; choose another --port" in done.stderr
        with serving(path, home=tmp_path) as (_, other):
            assert urlsplit(other).port != urlsplit(address).port


def run(home: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = clean_environment(HOME=str(home), **more)
    return ran(PROGRAM, "serve", *options, env=env, cwd=home)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nowhere"], "no history at"),
        (["h", "--root-path", "snapshots"], "--root-path 'snapshots': it begins with /"),
        (["h", "--host", "no-such-host.invalid"], "cannot be listened to"),
        (["--address", "127.0.0.1:1"], "no Ray cluster can be reached at '127.0.0.1:1'"),
    ],
)
@pytest.mark.by_day(2)
def test_what_cannot_be_served_is_told_in_one_line(tmp_path: Path, options: list[str], words: str) -> None:
    incident(tmp_path / "h")
    done = run(tmp_path, *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert words in done.stderr


def test_a_token_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    incident(tmp_path / "h")
    done = run(tmp_path, "h", RAY_SNAPSHOT_TOKEN="short")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "at least 16 plain characters" in done.stderr


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; from ray_snapshot.cli import main; sys.exit(main(['serve', 'h']))"
    )
    env = clean_environment(HOME=str(tmp_path))
    done = ran(sys.executable, "-c", code, env=env, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "ray-snapshot: error: serve needs uvicorn: pip install 'ray-snapshot[web]'\n"


def test_nothing_is_reached_from_other_machines_unless_it_is_asked_for(tmp_path: Path) -> None:
    with serving(incident(tmp_path / "h"), "--port", "0", home=tmp_path) as (_, address):
        port = urlsplit(address).port
        assert port is not None
        own = socket.gethostbyname(socket.gethostname())
        if not own.startswith("127."):
            with pytest.raises(OSError, match=r"refused|timed out"):
                socket.create_connection((own, port), 5).close()
