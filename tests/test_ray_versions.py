"""The versions of Ray that we are tested with are listed once; what else names them names the same. No Ray in here."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot import tested

ROOT = Path(__file__).parent.parent
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / ".ci/ray_versions.py"))


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_said", [])


def test_each_minor_version_of_the_range_is_there_once_the_newest_first() -> None:
    minors = [tested.minor(version) for version in tested.RAYS]
    newest, oldest = minors[0], minors[-1]
    assert minors == [(newest[0], number) for number in range(newest[1], oldest[1] - 1, -1)]
    assert len(minors) >= 6
    oldest_text, _, newest_text = tested.RANGE.partition(" to ")
    assert (tested.minor(oldest_text), tested.minor(newest_text)) == (oldest, newest)


def test_an_installation_moves_no_ray_that_works() -> None:
    """A lower bound, where the range begins; no upper one, for pip would take a newer Ray away."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [item for item in project["dependencies"] if item.startswith("ray")] == [
        "ray>=" + tested.RANGE.partition(" to ")[0]
    ]
    others = [item for extra in project["optional-dependencies"].values() for item in extra if item.startswith("ray")]
    assert others == ["ray[serve,tune,data,train,rllib,default]"]


def test_everything_else_is_tested_with_the_newest() -> None:
    assert f"ray=={tested.RAYS[0]}" in (ROOT / "constraints.txt").read_text().splitlines()


@pytest.mark.parametrize("page", ["README.md", "docs/reference/watched.md", "docs/howto/kuberay.md"])
def test_a_page_that_names_versions_names_the_range(page: str) -> None:
    text = (ROOT / page).read_text()
    assert f"Ray {tested.RANGE}" in text
    named = re.findall(r"\bRay (\d+\.\d+\b(?: to \d+\.\d+)?)(?! or newer)", text)
    assert set(named) == {tested.RANGE}


@pytest.mark.parametrize("version", [*tested.RAYS, "2.60.7", "2.50.0"])
def test_nothing_is_said_of_a_ray_within_the_range(version: str, caplog: pytest.LogCaptureFixture) -> None:
    tested.say_if_untested(version)
    assert caplog.messages == []


@pytest.mark.parametrize("version", ["2.7.1", "1.99.0", "2.61.0", "2.100.0", "3.0.0.dev0", "a fork's"])
def test_one_line_says_once_that_a_ray_was_not_tested(version: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        tested.say_if_untested(version)
    assert caplog.messages == [f"ray-snapshot is tested with Ray {tested.RANGE}; this is Ray {version}"]


def test_the_nightly_table_has_a_line_a_version_and_fails_with_any_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main, outcome = TOOL["main"], TOOL["Outcome"]
    monkeypatch.setitem(main.__globals__, "ROOMS", tmp_path)
    monkeypatch.setattr("sys.argv", ["ray_versions.py"])
    fails: set[str] = set()

    def run(version: str, tests: list[str]) -> Any:
        assert tests == list(TOOL["SELECTION"])
        return outcome(version, 40, int(version in fails), 100.0)

    monkeypatch.setitem(main.__globals__, "run", run)
    assert main() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["Ray", *tested.RAYS]
    fails.add(tested.RAYS[-1])
    assert main() == 1


def test_what_the_table_runs_is_there() -> None:
    parts = [name.partition("::") for name in TOOL["SELECTION"]]
    assert [file for file, _, name in parts if f"def {name.partition('[')[0]}" not in (ROOT / file).read_text()] == []
