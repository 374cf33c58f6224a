"""Every block of code on the site runs, or is looked at: Python page by page as one program, commands in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment, on_cluster
from code_blocks import ROOT, Block, Page, pages, shown, typed
from command_lines import faults, options_in_words

PAGES = pages()
BLOCKS = [block for page in PAGES.values() for block in page.blocks if not block.is_directive]
BOUND_S = 240.0
RUN = {"python", "console"}
LANGUAGES = {*RUN, "bash", "sql", "yaml", "dockerfile", "text"}


def is_tested_elsewhere(block: Block) -> bool:
    return "tested by" in PAGES[block.page].marks


def runs(block: Block, *, at_night: bool) -> bool:
    """Whether it is run, by day or at night."""
    if block.language not in RUN or "not run" in block.marks or "file" in block.marks or is_tested_elsewhere(block):
        return False
    is_late = "at night" in block.marks or (block.language == "python" and "python at night" in PAGES[block.page].marks)
    return at_night or not is_late


def pages_that_run(*, at_night: bool) -> list[str]:
    """At night those that have something to run which was not run by day."""
    found = []
    for page in PAGES.values():
        by_day, later = ({b.line for b in page.blocks if runs(b, at_night=night)} for night in (False, True))
        if (later - by_day) if at_night else by_day:
            found.append(page.name)
    return found


def printed(expected: str, output: str) -> bool:
    """Whether this was printed; `...` stands for anything, and an empty text for any output. Lines may be broken otherwise."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("..."))
    return not expected.strip() or re.fullmatch(pattern, " ".join(output.split()), re.DOTALL) is not None


class Folder:
    """Where a page is carried out."""

    def __init__(self, page: Page, path: Path, address: str | None) -> None:
        self.page = page
        self.path = path
        self.address = address
        self.names: dict[str, Any] = {"__name__": page.name.replace("/", "_").replace("-", "_")}

    def environment(self) -> dict[str, str]:
        """That of a user's terminal."""
        return clean_environment(
            HOME=str(self.path), PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )

    def carry_out(self, *, at_night: bool) -> None:
        """Every block in its order."""
        is_own = "own process" in self.page.marks
        program = [block for block in self.page.blocks if block.language == "python" and runs(block, at_night=at_night)]
        for block in self.page.blocks:
            if "file" in block.marks:
                (self.path / block.marks["file"]).write_text(block.code)
            elif block.language == "console" and runs(block, at_night=at_night):
                self._type(block)
            elif is_own and program and block is program[0]:
                self._start(program)
            elif not is_own and block in program:
                exec(compile("\n" * (block.line - 1) + block.code, f"docs/{self.page.name}.md", "exec"), self.names)

    def _type(self, block: Block) -> None:
        ends_with = int(block.marks.get("exit code", "0"))
        for command, output in shown(block):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.path, env=self.environment(), text=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BOUND_S, check=False,
            )  # fmt: skip
            assert done.returncode == ends_with, f"{block.place}: {command}: exit code {done.returncode}\n{done.stdout}"
            assert printed(output, done.stdout), (
                f"{block.place}: {command} printed\n{done.stdout}\nand the page says\n{output}"
            )

    def _start(self, program: list[Block]) -> None:
        lines = [""] * (program[-1].line + program[-1].code.count("\n") + 1)
        for block in program:
            for number, line in enumerate(block.code.splitlines()):
                lines[block.line - 1 + number] = line
        script = self.path / "page.py"
        script.write_text("\n".join(lines))
        assert self.address is not None
        more = {"HOME": str(self.path)} if os.environ.get("RAY_AUTH_MODE") != "token" else {}
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=self.path, env=on_cluster(self.address, **more), text=True, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=BOUND_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"docs/{self.page.name}.md (lines are the page's)\n{done.stdout}{done.stderr}"


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str | None:
    """Of the tests' cluster, where the page has Python that may need it."""
    page = PAGES[request.getfixturevalue("name")]
    if not any(block.language == "python" and re.search(r"\b(rs|ray)\.", block.code) for block in page.blocks):
        return None
    request.getfixturevalue("ray_cluster")
    import ray

    return str(ray.get_runtime_context().gcs_address)


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "at_night"),
    [(name, False) for name in pages_that_run(at_night=False)]
    + [pytest.param(name, True, marks=pytest.mark.nightly) for name in pages_that_run(at_night=True)],
)
def test_what_a_page_shows_is_so(
    name: str, at_night: bool, address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        Folder(PAGES[name], tmp_path, address).carry_out(at_night=at_night)


@pytest.mark.contract
def test_every_block_says_what_it_is() -> None:
    assert [block.place for block in BLOCKS if block.language not in LANGUAGES] == []
    assert len(BLOCKS) > 100


@pytest.mark.contract
def test_all_python_can_be_compiled() -> None:
    for block in BLOCKS:
        if block.language == "python":
            compile("\n" * (block.line - 1) + block.code, f"docs/{block.page}.md", "exec")


def test_every_command_can_be_typed() -> None:
    found = {
        f"{block.place}: {line}": wrong
        for block in BLOCKS
        if block.language in ("bash", "console")
        for line in typed(block)
        if (wrong := faults(line))
    }
    assert found == {}
    assert faults("ray-snapshot run --no-such-option app.py | ray-snapshot shwo h/") == [
        "run knows no --no-such-option",
        "there is no command shwo",
    ]


def test_every_command_of_the_readme_can_be_typed() -> None:
    text = (ROOT / "README.md").read_text()
    lines = re.findall(r"^(?:ray-snapshot|pytest|pip|make) .*$", text, re.MULTILINE)
    assert len(lines) > 10
    assert len(text.split()) <= 650
    assert {line: wrong for line in lines if (wrong := faults(line))} == {}


@pytest.mark.parametrize("path", ["README.md", *(f"docs/{name}.md" for name in PAGES if name != "decisions")])
def test_commands_inside_sentences_have_such_options(path: str) -> None:
    assert options_in_words((ROOT / path).read_text(encoding="utf-8")) == []


@pytest.mark.contract
def test_what_no_test_runs_says_why() -> None:
    """And is counted."""
    left_out = {block.place: block.marks["not run"] for block in BLOCKS if "not run" in block.marks}
    for place, why in left_out.items():
        print(f"{place}: {why}")
    assert all(len(why) > 10 for why in left_out.values())
    assert len(left_out) <= MOST_LEFT_OUT, "run it, or say here that one more cannot be run"


MOST_LEFT_OUT = 5


@pytest.mark.contract
def test_what_is_tested_elsewhere_is() -> None:
    for page in PAGES.values():
        where = page.marks.get("tested by")
        assert where is None or f"{Path(page.name).name}.md" in (ROOT / where).read_text(encoding="utf-8"), page.name
    others = {"sql", "yaml", "dockerfile"}
    assert [block.place for block in BLOCKS if block.language in others and not is_tested_elsewhere(block)] == []


@pytest.mark.contract
def test_what_a_command_prints_is_held_against_the_page() -> None:
    assert printed("...\nall is well\n", "a warning\nall is\n  well\n")
    assert printed("...\nall is well\n", "all is well\n")
    assert not printed("...\nall is well\n", "all is lost\n")
